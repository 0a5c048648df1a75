package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// admin is where the server with faults answers operators.
var admin string

// withFaults starts a server in test mode, and returns a client with the SDK's own retry policy, as
// docs/how-to/test-suites.md describes it.
func withFaults(t *testing.T) *aztables.ServiceClient {
	t.Helper()
	own := &server{folder: t.TempDir(), account: newName("go"), keys: [2]string{newKey(), newKey()}}
	own.more = []string{"ROWHOUSE_ADMIN_LISTEN=127.0.0.1:0", "ROWHOUSE_TEST_MODE=true"}
	if err := own.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.stop(); err != nil {
			t.Error(err)
		}
	})
	admin = regexp.MustCompile(`operators are answered at (http://\S+)`).FindStringSubmatch(own.log())[1]
	key := must(aztables.NewSharedKeyCredential(own.account, own.keys[0]))(t)
	return must(aztables.NewServiceClientWithSharedKey(own.endpoint, key, nil))(t)
}

// withTable makes a table.
func withTable(t *testing.T, service *aztables.ServiceClient, name string) *aztables.Client {
	t.Helper()
	table := service.NewClient(name)
	must(table.CreateTable(limited(t), nil))(t)
	return table
}

func order(t *testing.T, rules string) {
	request, _ := http.NewRequest("PUT", admin+"/test/faults", strings.NewReader(rules))
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
}

func counted(t *testing.T) string {
	t.Helper()
	answer := must(http.Get(admin + "/test/faults"))(t)
	defer answer.Body.Close()
	var listed struct{ Rules []struct{ Matched int } }
	if err := json.NewDecoder(answer.Body).Decode(&listed); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(listed.Rules)
}

func orderOf(row string) []byte {
	return []byte(`{"PartitionKey":"p","RowKey":"` + row + `"}`)
}

func TestALostAnswer(t *testing.T) {
	ctx, orders := limited(t), withTable(t, withFaults(t), "Orders")
	order(t, `[{"operation": "InsertEntity", "disconnect": "after"}]`)
	_, err := orders.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"1"}`), nil) // 409
	refused(t, err, 409, aztables.EntityAlreadyExists)
	must(orders.GetEntity(ctx, "p", "1", nil))(t)
	if matched := counted(t); matched != "[{2}]" {
		t.Error(matched)
	}
}

func TestShortPagesAreFollowed(t *testing.T) {
	ctx, orders := limited(t), withTable(t, withFaults(t), "Orders")
	for _, row := range []string{"a", "b", "c"} {
		must(orders.AddEntity(ctx, orderOf(row), nil))(t)
	}
	order(t, `[{"table": "Orders", "page": 1, "times": 9}]`)
	pages := 0
	for pager := orders.NewListEntitiesPager(nil); pager.More(); pages++ {
		if page := must(pager.NextPage(ctx))(t); len(page.Entities) != 1 {
			t.Error(page.Entities)
		}
	}
	if matched := counted(t); pages != 3 || matched != "[{3}]" {
		t.Error(pages, matched)
	}
}

func TestWhatIsRepeatedAndHowOften(t *testing.T) {
	ctx, service := limited(t), withFaults(t)
	tables := map[string]*aztables.Client{}
	for _, name := range []string{"busy", "timeout", "error", "slow", "lost", "stale", "once", "read"} {
		tables[name] = withTable(t, service, name)
	}
	insert := func(name string) error {
		_, err := tables[name].AddEntity(ctx, orderOf("1"), nil)
		return err
	}
	for _, name := range []string{"stale", "read"} {
		if err := insert(name); err != nil {
			t.Fatal(err)
		}
	}
	order(t, `[
		{"table": "busy", "times": 9, "error": "ServerBusy"},
		{"table": "timeout", "times": 9, "error": "OperationTimedOut"},
		{"table": "error", "times": 9, "error": "InternalError"},
		{"table": "slow", "times": 9, "error": "RequestTimedOut"},
		{"table": "lost", "times": 9, "disconnect": "before"},
		{"table": "stale", "operation": "MergeEntity", "times": 9, "error": "UpdateConditionNotSatisfied"},
		{"table": "once", "error": "ServerBusy"},
		{"table": "read", "disconnect": "before"}]`)
	get := func(name string) error {
		_, err := tables[name].GetEntity(ctx, "p", "1", nil)
		return err
	}
	merge := func(name string) error {
		options := &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeMerge}
		_, err := tables[name].UpdateEntity(ctx, orderOf("1"), options)
		return err
	}
	// At least 0.6, 1.8 and 4.2 seconds of an average of 0.8, 2.4 and 5.6; a busy server says when.
	calls := []struct {
		table   string
		call    func(string) error
		status  int
		atLeast time.Duration
	}{
		{"busy", insert, 503, 3 * time.Second},
		{"timeout", insert, 500, 6 * time.Second},
		{"error", insert, 500, 6 * time.Second},
		{"slow", insert, 408, 6 * time.Second},
		{"lost", insert, 0, 6 * time.Second},
		{"stale", merge, 412, 0},
		{"once", insert, 200, time.Second},
		{"read", get, 200, 0},
	}
	var running sync.WaitGroup
	for _, one := range calls {
		running.Add(1)
		go func() {
			defer running.Done()
			begun := time.Now()
			err := one.call(one.table)
			taken := time.Since(begun)
			status := 0
			var answer *azcore.ResponseError
			if err == nil {
				status = 200
			} else if errors.As(err, &answer) {
				status = answer.StatusCode
			}
			if status != one.status || taken < one.atLeast {
				t.Errorf("%s: %d after %v: %v", one.table, status, taken, err)
			}
		}()
	}
	running.Wait()
	if matched := counted(t); matched != "[{4} {4} {4} {4} {4} {1} {2} {2}]" {
		t.Error(matched)
	}
}
