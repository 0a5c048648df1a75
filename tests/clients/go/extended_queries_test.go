package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// With orderBy("Created desc") in PerCallPolicies of the client's options.
type orderBy string

func (order orderBy) Do(request *policy.Request) (*http.Response, error) {
	query := request.Raw().URL.Query()
	query.Set("$orderby", string(order))
	request.Raw().URL.RawQuery = query.Encode()
	return request.Next()
}

func newest(table *aztables.Client) *runtime.Pager[aztables.ListEntitiesResponse] {
	return table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Top: to.Ptr(int32(100))})
}

// extended starts a server whose account has extended queries.
func extended(t *testing.T) *server {
	t.Helper()
	own := &server{folder: t.TempDir(), account: newName("go"), keys: [2]string{newKey(), newKey()}}
	own.more = []string{"ROWHOUSE_EXTENDED_QUERIES=" + own.account}
	if err := own.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.stop(); err != nil {
			t.Error(err)
		}
	})
	return own
}

// tableOf is a client of a table of this server.
func (s *server) tableOf(t *testing.T, name string, policies ...policy.Policy) *aztables.Client {
	t.Helper()
	chosen := options()
	chosen.PerCallPolicies = policies
	key := must(aztables.NewSharedKeyCredential(s.account, s.keys[0]))(t)
	return must(aztables.NewServiceClientWithSharedKey(s.endpoint, key, chosen))(t).NewClient(name)
}

// people fills a table.
func people(t *testing.T, ctx context.Context, own *server) *aztables.Client {
	t.Helper()
	table := own.tableOf(t, "People")
	must(table.CreateTable(ctx, nil))(t)
	for at, name := range []string{"Smith", "smart", "Jones"} {
		body := fmt.Sprintf(`{"PartitionKey":"p","RowKey":"%d","Name":"%s"}`, at, name)
		must(table.AddEntity(ctx, []byte(body), nil))(t)
	}
	return table
}

func TestFiltersThatTheServiceLacks(t *testing.T) {
	ctx := limited(t)
	table := people(t, ctx, extended(t))
	for filter, expected := range map[string]string{
		"startswith(Name,'Sm')":                "0",
		"contains(tolower(Name),'sm') eq true": "01",
		"RowKey in ('0','2')":                  "02",
		"Number eq null":                       "012",
	} {
		if found := rowsOf(t, ctx, table, &aztables.ListEntitiesOptions{Filter: to.Ptr(filter)}); found != expected {
			t.Errorf("%s found %q", filter, found)
		}
	}
	_, err := table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: to.Ptr("length(Name) eq 5")}).NextPage(ctx)
	var refused *azcore.ResponseError
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusNotImplemented {
		t.Errorf("an unknown function: %v", err)
	}
}

func TestPagesInDescendingOrder(t *testing.T) {
	ctx := limited(t)
	own := extended(t)
	people(t, ctx, own)
	table := own.tableOf(t, "People", orderBy("PartitionKey desc,RowKey desc"))
	if found := rowsOf(t, ctx, table, &aztables.ListEntitiesOptions{Top: to.Ptr(int32(2))}); found != "210" {
		t.Errorf("found %q", found)
	}
}

// makeIndex makes an index over a property, and waits until the server uses it.
func makeIndex(t *testing.T, ctx context.Context, own *server, table, name string) {
	t.Helper()
	command := exec.CommandContext(ctx, binary(), "index", "create", table, name, "--account", own.account, "--yes")
	command.Dir, command.Env = own.folder, own.settings()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for {
		_, err := own.tableOf(t, table, orderBy(name)).NewListEntitiesPager(nil).NextPage(ctx)
		var answer *azcore.ResponseError
		if err == nil {
			return
		} else if !errors.As(err, &answer) || answer.StatusCode != http.StatusNotImplemented {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestPagesInTheOrderOfAProperty(t *testing.T) {
	ctx := limited(t)
	own := extended(t)
	table := own.tableOf(t, "Logs")
	must(table.CreateTable(ctx, nil))(t)
	start := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for at := range 120 {
		entity := aztables.EDMEntity{
			Entity:     aztables.Entity{PartitionKey: fmt.Sprint("p", at%3), RowKey: fmt.Sprint(at)},
			Properties: map[string]any{"Created": aztables.EDMDateTime(start.Add(time.Duration(at*7%120) * time.Minute))},
		}
		must(table.AddEntity(ctx, must(json.Marshal(entity))(t), nil))(t)
	}
	makeIndex(t, ctx, own, "Logs", "Created")
	at, sizes := 119, []int{}
	for pages := newest(own.tableOf(t, "Logs", orderBy("Created desc"))); pages.More(); {
		page := must(pages.NextPage(ctx))(t)
		sizes = append(sizes, len(page.Entities))
		for _, text := range page.Entities {
			var entity aztables.EDMEntity
			if err := json.Unmarshal(text, &entity); err != nil {
				t.Fatal(err)
			}
			created := time.Time(entity.Properties["Created"].(aztables.EDMDateTime))
			if expected := start.Add(time.Duration(at) * time.Minute); !created.Equal(expected) {
				t.Fatalf("%v in the place of %v", created, expected)
			}
			at--
		}
	}
	if fmt.Sprint(sizes) != "[100 20]" {
		t.Errorf("pages of %v", sizes)
	}
}

func TestTheExampleIsWhatIsTested(t *testing.T) {
	page := must(os.ReadFile("../../../docs/how-to/operator-features.md"))(t)
	source := must(os.ReadFile("extended_queries_test.go"))(t)
	example := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(page)
	if example == nil || !strings.Contains(string(source), string(example[1])) {
		t.Errorf("the page has %s", example)
	}
}
