package client

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// pages reads everything, page by page, as row keys.
func pages(t *testing.T, ctx context.Context, table *aztables.Client, options *aztables.ListEntitiesOptions) [][]string {
	t.Helper()
	var found [][]string
	pager := table.NewListEntitiesPager(options)
	for pager.More() {
		rows := []string{}
		for _, bytes := range must(pager.NextPage(ctx))(t).Entities {
			rows = append(rows, decode(t, bytes).RowKey)
		}
		found = append(found, rows)
	}
	return found
}

// rowsOf joins the row keys of all pages.
func rowsOf(t *testing.T, ctx context.Context, table *aztables.Client, options *aztables.ListEntitiesOptions) string {
	t.Helper()
	return strings.Join(slices.Concat(pages(t, ctx, table, options)...), "")
}

func TestFiltersOfEveryType(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	early := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 5 {
		values := properties{
			"n": int32(n), "d": float64(n) + 0.5, "s": fmt.Sprintf("it's %d", n), "even": n%2 == 0,
			"big": aztables.EDMInt64(int64(n) * 1e12), "x": aztables.EDMBinary{byte(n)},
			"t": aztables.EDMDateTime(early.Add(time.Duration(n) * time.Second)),
			"g": guid[:len(guid)-1] + aztables.EDMGUID(fmt.Sprint(n)),
		}
		if n == 4 {
			values["only"] = "here"
		}
		must(table.AddEntity(ctx, entity(fmt.Sprint(n), values), nil))(t)
	}
	for filter, expected := range map[string]string{
		"PartitionKey eq 'p' and RowKey ge '3'": "34",
		"n gt 0 and n le 2 or n eq 4":           "124",
		"not (n gt 1)":                          "01",
		"big ge 3000000000000L":                 "34",
		"d lt 1.75":                             "01",
		"s eq 'it''s 3'":                        "3",
		"even eq true":                          "024",
		"t gt datetime'2020-01-01T00:00:02Z'":   "34",
		"g eq guid'" + string(guid[:35]) + "2'": "2",
		"x ge X'03'":                            "34",
		"only ne 'there'":                       "4",
		"n eq 99":                               "",
	} {
		t.Run(filter, func(t *testing.T) {
			if found := rowsOf(t, ctx, table, &aztables.ListEntitiesOptions{Filter: &filter}); found != expected {
				t.Fatalf("expected %q, found %q", expected, found)
			}
		})
	}
	_, err := table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: to.Ptr("n eq")}).NextPage(ctx)
	refused(t, err, 400, aztables.InvalidInput)
}

func TestSelectAndTop(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	for _, row := range []string{"1", "2", "3"} {
		must(table.AddEntity(ctx, entity(row, properties{"a": row, "b": int32(1)}), nil))(t)
	}
	page := must(table.NewListEntitiesPager(&aztables.ListEntitiesOptions{
		Select: to.Ptr("a,missing"), Top: to.Ptr(int32(2)),
	}).NextPage(ctx))(t)
	if len(page.Entities) != 2 || page.NextRowKey == nil {
		t.Fatalf("%d entities on the page", len(page.Entities))
	}
	// An EDMEntity would read null as a number.
	var found properties
	if err := json.Unmarshal(page.Entities[1], &found); err != nil {
		t.Fatal(err)
	}
	delete(found, "odata.etag")
	if !reflect.DeepEqual(found, properties{"a": "2", "missing": nil}) {
		t.Fatalf("selected %v", found)
	}
}

func TestPagesAndTheirTokens(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	var all []string
	for start := 0; start < 1100; start += 100 {
		var actions []aztables.TransactionAction
		for n := range 100 {
			row := fmt.Sprintf("%04d", start+n)
			all = append(all, row)
			actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd, Entity: entity(row, nil)})
		}
		must(table.SubmitTransaction(ctx, actions, nil))(t)
	}
	for top, expected := range map[int32][]int{1000: {1000, 100}, 400: {400, 400, 300}} {
		found := pages(t, ctx, table, &aztables.ListEntitiesOptions{Top: &top})
		var sizes []int
		for _, page := range found {
			sizes = append(sizes, len(page))
		}
		if !slices.Equal(sizes, expected) || !slices.Equal(slices.Concat(found...), all) {
			t.Fatalf("pages of %v", sizes)
		}
	}
	if found := pages(t, ctx, table, nil); len(found) != 2 {
		t.Fatalf("%d pages without a top", len(found))
	}
	options := &aztables.ListEntitiesOptions{Filter: to.Ptr("RowKey ge '0100' and RowKey lt '0110'"), Top: to.Ptr(int32(4))}
	first := must(table.NewListEntitiesPager(options).NextPage(ctx))(t)
	options.NextPartitionKey, options.NextRowKey = first.NextPartitionKey, first.NextRowKey
	if rest := slices.Concat(pages(t, ctx, table, options)...); !slices.Equal(rest, all[104:110]) {
		t.Fatalf("the token led to %v", rest)
	}
}
