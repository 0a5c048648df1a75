// Package legacy drives the retired storage SDK for Go against a real Rowhouse
// server.
package legacy

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/storage"
)

const (
	startTime = 60 * time.Second
	stopTime  = 40 * time.Second
	version   = "2016-05-31"
)

var (
	ready   = regexp.MustCompile(`^Rowhouse is ready at http://([^ ,/]+)[ ,/]`)
	key     = base64.StdEncoding.EncodeToString(random(64))
	account = fmt.Sprintf("go%x", random(8))
	address string
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "rowhouse-legacy-go-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	process, err := start(folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := stop(process); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// start runs a server on a free port and waits until it says where it is.
func start(folder string) (*exec.Cmd, error) {
	binary := os.Getenv("ROWHOUSE_BIN")
	if binary == "" {
		binary = "../../../target/debug/rowhouse"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	process := exec.Command(binary)
	process.Dir, process.Env, process.Stderr = folder, settings(folder), os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	first := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		lines.Scan()
		first <- lines.Text()
		for lines.Scan() {
		}
	}()
	line := ""
	select {
	case line = <-first:
	case <-time.After(startTime):
	}
	found := ready.FindStringSubmatch(line)
	if found == nil {
		_ = process.Process.Kill()
		return nil, fmt.Errorf("the server did not become ready; it printed %q", line)
	}
	address = found[1]
	return process, nil
}

// settings is the environment without what whoever runs the tests has set.
func settings(folder string) []string {
	database := os.Getenv("DATABASE_URL")
	if database == "" {
		database = "sqlite://" + filepath.Join(folder, "rowhouse.db")
	}
	settings := []string{
		"DATABASE_URL=" + database,
		"ROWHOUSE_LISTEN=127.0.0.1:0",
		"ROWHOUSE_ACCOUNTS=" + account + ":" + key,
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ROWHOUSE_") && !strings.HasPrefix(variable, "DATABASE_URL") {
			settings = append(settings, variable)
		}
	}
	return settings
}

func stop(process *exec.Cmd) error {
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the server died: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- process.Wait() }()
	select {
	case err := <-exited:
		return err
	case <-time.After(stopTime):
		_ = process.Process.Kill()
		return fmt.Errorf("the server did not end")
	}
}

func random(count int) []byte {
	bytes := make([]byte, count)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return bytes
}

// service is a client that addresses the account by its host name, as this SDK always
// does, and never tries again, so that no failure is hidden.
func service(t *testing.T) storage.TableServiceClient {
	t.Helper()
	client, err := storage.NewClient(account, key, "rowhouse.test", version, false)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: time.Minute}
	client.Sender = &storage.DefaultSender{RetryAttempts: 1}
	return client.GetTableService()
}

var tables atomic.Int64

// table is a new table.
func table(t *testing.T) *storage.Table {
	t.Helper()
	client := service(t)
	table := client.GetTableReference(fmt.Sprintf("Legacy%d", tables.Add(1)))
	check(t, table.Create(30, storage.EmptyPayload, nil))
	return table
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused demands that the service answered with this status and code. Some of the SDK's
// errors have them in their text alone.
func refused(t *testing.T, err error, status int, code string) {
	t.Helper()
	expected := fmt.Sprintf("StatusCode=%d, ErrorCode=%s,", status, code)
	if err == nil || !strings.Contains(err.Error(), expected) {
		t.Fatalf("expected %s got %v", expected, err)
	}
}
