// Package client drives the official Azure Tables SDK for Go against a real
// Rowhouse server.
package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

const (
	startTime = 60 * time.Second
	stopTime  = 40 * time.Second
	testTime  = 60 * time.Second
)

var ready = regexp.MustCompile(`^Rowhouse is ready at (http://[^ ,]+),? `)

// rowhouse is the server of this run, on a free port and with an account that
// nobody used before.
var rowhouse *server

type server struct {
	folder  string
	account string
	keys    [2]string
	// more are settings beside those of every server, such as "ROWHOUSE_X=1".
	more     []string
	origin   string
	endpoint string
	process  *exec.Cmd
	exited   chan error
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "rowhouse-go-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	rowhouse = &server{folder: folder, account: "go" + hex.EncodeToString(random(8)), keys: [2]string{newKey(), newKey()}}
	if err := rowhouse.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := rowhouse.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func (s *server) start() error {
	log, err := os.Create(s.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = exec.Command(binary())
	s.process.Dir = s.folder
	s.process.Env = s.settings()
	s.process.Stderr = log
	output, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	first := make(chan string, 1)
	s.exited = make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(output)
		lines.Scan()
		first <- lines.Text()
		for lines.Scan() {
		}
		s.exited <- s.process.Wait()
	}()
	line := ""
	select {
	case line = <-first:
	case <-time.After(startTime):
	}
	found := ready.FindStringSubmatch(line)
	if found == nil {
		_ = s.process.Process.Kill()
		return fmt.Errorf("the server did not become ready; it printed %q and logged:\n%s", line, s.log())
	}
	s.origin = found[1]
	s.endpoint = s.origin + "/" + s.account
	return nil
}

// settings is the environment without what whoever runs the tests has set.
func (s *server) settings() []string {
	database := os.Getenv("DATABASE_URL")
	if database == "" {
		database = "sqlite://" + filepath.Join(s.folder, "rowhouse.db")
	}
	settings := []string{
		"DATABASE_URL=" + database,
		"ROWHOUSE_LISTEN=127.0.0.1:0",
		"ROWHOUSE_ACCOUNTS=" + s.account + ":" + s.keys[0] + ":" + s.keys[1],
	}
	settings = append(settings, s.more...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ROWHOUSE_") && !strings.HasPrefix(variable, "DATABASE_URL") {
			settings = append(settings, variable)
		}
	}
	return settings
}

// stop asks the server to end, and reports what it logged as a failure.
func (s *server) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the server died: %w\n%s", err, s.log())
	}
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("the server ended with %w\n%s", err, s.log())
		}
	case <-time.After(stopTime):
		_ = s.process.Process.Kill()
		return errors.New("the server did not end")
	}
	for _, line := range strings.Split(s.log(), "\n") {
		if strings.Contains(line, "ERROR") || strings.Contains(line, "panicked") {
			return fmt.Errorf("the server logged: %s", line)
		}
	}
	return nil
}

func (s *server) logFile() string { return filepath.Join(s.folder, "server.log") }

func (s *server) log() string {
	text, _ := os.ReadFile(s.logFile())
	return string(text)
}

func binary() string {
	chosen := os.Getenv("ROWHOUSE_BIN")
	if chosen == "" {
		chosen = "../../../target/debug/rowhouse"
	}
	path, err := filepath.Abs(chosen)
	if err != nil {
		return chosen
	}
	return path
}

func random(count int) []byte {
	bytes := make([]byte, count)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return bytes
}

func newKey() string { return base64.StdEncoding.EncodeToString(random(64)) }

// options make the SDK never try again, so that no failure is hidden.
func options() *aztables.ClientOptions {
	return &aztables.ClientOptions{ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
}

func credential(t *testing.T, key string) *aztables.SharedKeyCredential {
	t.Helper()
	return must(aztables.NewSharedKeyCredential(rowhouse.account, key))(t)
}

func service(t *testing.T) *aztables.ServiceClient {
	t.Helper()
	return must(aztables.NewServiceClientWithSharedKey(rowhouse.endpoint, credential(t, rowhouse.keys[0]), options()))(t)
}

var numbers atomic.Int64

// newName makes a table name that no other test uses.
func newName(prefix string) string {
	return fmt.Sprintf("%s%dx%04d", prefix, os.Getpid(), numbers.Add(1))
}

// newTable makes a table for one test.
func newTable(t *testing.T) (*aztables.Client, string) {
	t.Helper()
	name := newName("T")
	table := service(t).NewClient(name)
	must(table.CreateTable(limited(t), nil))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTime)
		defer cancel()
		if _, err := table.Delete(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	return table, name
}

// limited is a context that ends when the test does, or takes too long.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// must unwraps a result that has to be there.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// refused sees that err is an answer with this status and error code.
func refused(t *testing.T, err error, status int, code aztables.TableErrorCode) {
	t.Helper()
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		t.Fatalf("expected %d %s, got %v", status, code, err)
	}
	if answer.StatusCode != status || answer.ErrorCode != string(code) {
		t.Fatalf("expected %d %s, got %d %s", status, code, answer.StatusCode, answer.ErrorCode)
	}
}
