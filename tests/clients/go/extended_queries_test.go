package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// orderBy adds $orderby to each query, which the SDK has no option for.
type orderBy string

func (order orderBy) Do(request *policy.Request) (*http.Response, error) {
	raw := request.Raw()
	if raw.Method == http.MethodGet {
		query := raw.URL.Query()
		query.Set("$orderby", string(order))
		raw.URL.RawQuery = query.Encode()
	}
	return request.Next()
}

// extended starts a server whose account has extended queries, and fills a table there.
func extended(t *testing.T, ctx context.Context, policies ...policy.Policy) *aztables.Client {
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
	chosen := options()
	chosen.PerCallPolicies = policies
	key := must(aztables.NewSharedKeyCredential(own.account, own.keys[0]))(t)
	table := must(aztables.NewServiceClientWithSharedKey(own.endpoint, key, chosen))(t).NewClient("People")
	must(table.CreateTable(ctx, nil))(t)
	for at, name := range []string{"Smith", "smart", "Jones"} {
		body := fmt.Sprintf(`{"PartitionKey":"p","RowKey":"%d","Name":"%s"}`, at, name)
		must(table.AddEntity(ctx, []byte(body), nil))(t)
	}
	return table
}

func TestFiltersThatTheServiceLacks(t *testing.T) {
	ctx := limited(t)
	table := extended(t, ctx)
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
	table := extended(t, ctx, orderBy("PartitionKey desc,RowKey desc"))
	if found := rowsOf(t, ctx, table, &aztables.ListEntitiesOptions{Top: to.Ptr(int32(2))}); found != "210" {
		t.Errorf("found %q", found)
	}
}
