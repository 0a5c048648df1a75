package client

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// names reads all pages, and also returns how many tables were on each.
func names(ctx context.Context, client *aztables.ServiceClient, options *aztables.ListTablesOptions) ([]string, []int, error) {
	var found []string
	var sizes []int
	pager := client.NewListTablesPager(options)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, nil, err
		}
		sizes = append(sizes, len(page.Tables))
		for _, table := range page.Tables {
			found = append(found, *table.Name)
		}
	}
	return found, sizes, nil
}

func listed(t *testing.T, name string) bool {
	t.Helper()
	found, _, err := names(limited(t), service(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(found, name)
}

func TestATableIsCreatedListedAndDeleted(t *testing.T) {
	ctx, client, name := limited(t), service(t), newName("T")
	created := must(client.CreateTable(ctx, name, nil))(t)
	if *created.TableName != name {
		t.Fatalf("created %q", *created.TableName)
	}
	if !listed(t, name) {
		t.Fatal("the new table is not listed")
	}
	must(client.DeleteTable(ctx, name, nil))(t)
	if listed(t, name) {
		t.Fatal("the deleted table is listed")
	}
}

func TestATableExistsOnceInAnyCasing(t *testing.T) {
	ctx, client, name := limited(t), service(t), newName("MixedCase")
	must(client.CreateTable(ctx, name, nil))(t)
	for _, again := range []string{name, "mIXEDcASE" + name[len("MixedCase"):]} {
		_, err := client.CreateTable(ctx, again, nil)
		refused(t, err, 409, aztables.TableAlreadyExists)
	}
	must(client.NewClient("MIXEDCASE"+name[len("MixedCase"):]).Delete(ctx, nil))(t)
	_, err := client.DeleteTable(ctx, name, nil)
	refused(t, err, 404, aztables.ResourceNotFound)
}

func TestTablesAreFilteredAndComeInPages(t *testing.T) {
	ctx, client, prefix := limited(t), service(t), newName("Paged")
	var all []string
	for n := range 7 {
		all = append(all, fmt.Sprintf("%sx%d", prefix, n))
	}
	for _, name := range all {
		must(client.CreateTable(ctx, name, nil))(t)
		defer client.DeleteTable(ctx, name, nil)
	}
	filter := fmt.Sprintf("TableName ge '%sx' and TableName lt '%sy'", prefix, prefix)
	found, sizes, err := names(ctx, client, &aztables.ListTablesOptions{Filter: &filter, Top: to.Ptr(int32(3))})
	if err != nil || !slices.Equal(found, all) || !slices.Equal(sizes, []int{3, 3, 1}) {
		t.Fatalf("found %v in pages of %v: %v", found, sizes, err)
	}
	page := must(client.NewListTablesPager(&aztables.ListTablesOptions{Filter: &filter, Top: to.Ptr(int32(3))}).NextPage(ctx))(t)
	rest, _, err := names(ctx, client, &aztables.ListTablesOptions{Filter: &filter, NextTableName: page.NextTableName})
	if err != nil || !slices.Equal(rest, all[3:]) {
		t.Fatalf("the token led to %v: %v", rest, err)
	}
}

func TestMetadataOfTables(t *testing.T) {
	ctx, client := limited(t), service(t)
	_, name := newTable(t)
	filter := fmt.Sprintf("TableName eq '%s'", name)
	for format, full := range map[aztables.MetadataFormat]bool{aztables.MetadataFormatFull: true, aztables.MetadataFormatNone: false} {
		page := must(client.NewListTablesPager(&aztables.ListTablesOptions{Filter: &filter, Format: &format}).NextPage(ctx))(t)
		if len(page.Tables) != 1 || (len(page.Tables[0].Value) > 0) != full {
			t.Fatalf("%s has %d tables", format, len(page.Tables))
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	for name, code := range map[string]aztables.TableErrorCode{
		"my_table": "InvalidResourceName", "ab": aztables.OutOfRangeInput, "tables": aztables.InvalidInput,
	} {
		_, err := service(t).CreateTable(limited(t), name, nil)
		refused(t, err, 400, code)
	}
}

func TestAMissingTableIsReported(t *testing.T) {
	ctx, missing := limited(t), service(t).NewClient(newName("Missing"))
	body := []byte(`{"PartitionKey":"p","RowKey":"r"}`)
	for name, attempt := range map[string]func() error{
		"add":    func() error { _, err := missing.AddEntity(ctx, body, nil); return err },
		"upsert": func() error { _, err := missing.UpsertEntity(ctx, body, nil); return err },
		"update": func() error { _, err := missing.UpdateEntity(ctx, body, nil); return err },
		"get":    func() error { _, err := missing.GetEntity(ctx, "p", "r", nil); return err },
		"delete": func() error { _, err := missing.DeleteEntity(ctx, "p", "r", nil); return err },
		"list":   func() error { _, err := missing.NewListEntitiesPager(nil).NextPage(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, attempt(), 404, aztables.TableNotFound) })
	}
	_, err := missing.GetAccessPolicy(ctx, nil)
	refused(t, err, 404, aztables.TableNotFound)
	_, err = missing.Delete(ctx, nil)
	refused(t, err, 404, aztables.ResourceNotFound)
}

func TestBothKeysOpenTheDoorAndOthersDoNot(t *testing.T) {
	ctx := limited(t)
	for _, key := range rowhouse.keys {
		client := must(aztables.NewServiceClientWithSharedKey(rowhouse.endpoint, credential(t, key), options()))(t)
		must(client.NewListTablesPager(nil).NextPage(ctx))(t)
	}
	wrong := credential(t, newKey())
	client := must(aztables.NewServiceClientWithSharedKey(rowhouse.endpoint, wrong, options()))(t)
	_, err := client.NewListTablesPager(nil).NextPage(ctx)
	refused(t, err, 403, "AuthenticationFailed")
	if err := wrong.SetAccountKey(rowhouse.keys[0]); err != nil {
		t.Fatal(err)
	}
	must(client.NewListTablesPager(nil).NextPage(ctx))(t)
}

func TestConnectionStringsAndAddressesOfTables(t *testing.T) {
	ctx := limited(t)
	_, name := newTable(t)
	text := fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;TableEndpoint=%s;",
		rowhouse.account, rowhouse.keys[0], rowhouse.endpoint)
	client := must(aztables.NewServiceClientFromConnectionString(text, options()))(t)
	must(client.NewClient(name).AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"r"}`), nil))(t)
	table := must(aztables.NewClientWithSharedKey(rowhouse.endpoint+"/"+name, credential(t, rowhouse.keys[0]), options()))(t)
	must(table.GetEntity(ctx, "p", "r", nil))(t)
}
