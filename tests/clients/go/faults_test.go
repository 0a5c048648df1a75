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

// withFaults starts a server in test mode, and makes a table by a client with the SDK's own retry
// policy, as docs/how-to/test-suites.md describes it.
func withFaults(t *testing.T) *aztables.Client {
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
	orders := must(aztables.NewServiceClientWithSharedKey(own.endpoint, key, nil))(t).NewClient("Orders")
	must(orders.CreateTable(limited(t), nil))(t)
	return orders
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
	ctx, orders := limited(t), withFaults(t)
	order(t, `[{"operation": "InsertEntity", "then": {"drop": "after"}}]`)
	_, err := orders.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"1"}`), nil) // 409
	refused(t, err, 409, aztables.EntityAlreadyExists)
	must(orders.GetEntity(ctx, "p", "1", nil))(t)
	if matched := counted(t); matched != "[{2}]" {
		t.Error(matched)
	}
}

func TestWhatIsRepeatedAndHowOften(t *testing.T) {
	ctx, orders := limited(t), withFaults(t)
	insert := func(row string) error {
		_, err := orders.AddEntity(ctx, orderOf(row), nil)
		return err
	}
	for _, row := range []string{"stale", "read"} {
		if err := insert(row); err != nil {
			t.Fatal(err)
		}
	}
	order(t, `[
		{"row": "busy", "times": 9, "then": {"error": "ServerBusy"}},
		{"row": "timeout", "times": 9, "then": {"error": "OperationTimedOut"}},
		{"row": "error", "times": 9, "then": {"error": "InternalError"}},
		{"row": "slow", "operation": "InsertEntity", "times": 9, "then": {"error": "RequestTimedOut"}},
		{"row": "dropped", "times": 9, "then": {"drop": "before"}},
		{"row": "stale", "operation": "MergeEntity", "times": 9, "then": {"error": "UpdateConditionNotSatisfied"}},
		{"row": "once", "then": {"error": "ServerBusy"}},
		{"row": "read", "then": {"drop": "before"}}]`)
	get := func(row string) error {
		_, err := orders.GetEntity(ctx, "p", row, nil)
		return err
	}
	merge := func(row string) error {
		options := &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeMerge}
		_, err := orders.UpdateEntity(ctx, orderOf(row), options)
		return err
	}
	// At least 0.6, 1.8 and 4.2 seconds of an average of 0.8, 2.4 and 5.6; a busy server says when.
	calls := []struct {
		row     string
		call    func(string) error
		status  int
		atLeast time.Duration
	}{
		{"busy", insert, 503, 3 * time.Second},
		{"timeout", insert, 500, 6 * time.Second},
		{"error", insert, 500, 6 * time.Second},
		{"slow", insert, 408, 6 * time.Second},
		{"dropped", insert, 0, 6 * time.Second},
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
			err := one.call(one.row)
			taken := time.Since(begun)
			status := 0
			var answer *azcore.ResponseError
			if err == nil {
				status = 200
			} else if errors.As(err, &answer) {
				status = answer.StatusCode
			}
			if status != one.status || taken < one.atLeast {
				t.Errorf("%s: %d after %v: %v", one.row, status, taken, err)
			}
		}()
	}
	running.Wait()
	if matched := counted(t); matched != "[{4} {4} {4} {4} {4} {1} {2} {2}]" {
		t.Error(matched)
	}
}
