package legacy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/storage"
)

var levels = []storage.MetadataLevel{storage.NoMetadata, storage.MinimalMetadata, storage.FullMetadata}

// entity is one with a property of each type that the SDK knows.
func entity(table *storage.Table, row string) *storage.Entity {
	entity := table.GetEntityReference("p", row)
	entity.Properties = map[string]interface{}{
		"Text":   "été",
		"Number": 1.5,
		"Yes":    true,
		"Long":   int64(5_000_000_000),
		"Bytes":  []byte{1, 2, 3},
		"Date":   time.Date(2018, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	return entity
}

func TestTables(t *testing.T) {
	table := table(t)
	refused(t, table.Create(30, storage.EmptyPayload, nil), 409, "TableAlreadyExists")
	check(t, table.Get(30, storage.FullMetadata))
	client := service(t)
	for _, level := range levels {
		found, err := client.QueryTables(level, &storage.QueryTablesOptions{Filter: "TableName eq '" + table.Name + "'"})
		check(t, err)
		if len(found.Tables) != 1 || found.Tables[0].Name != table.Name {
			t.Fatalf("%s: %v", level, found.Tables)
		}
	}
	check(t, table.Delete(30, nil))
	refused(t, table.Delete(30, nil), 404, "ResourceNotFound")
}

func TestPolicies(t *testing.T) {
	table := table(t)
	start := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	policy := storage.TableAccessPolicy{
		ID: "readers", StartTime: start, ExpiryTime: start.Add(time.Hour), CanRead: true, CanAppend: true,
	}
	check(t, table.SetPermissions([]storage.TableAccessPolicy{policy}, 30, nil))
	found, err := table.GetPermissions(30, nil)
	check(t, err)
	if len(found) != 1 || found[0].ID != "readers" || !found[0].CanRead || !found[0].CanAppend || found[0].CanDelete {
		t.Fatalf("%+v", found)
	}
}

func TestServiceProperties(t *testing.T) {
	client := service(t)
	days := 7
	logging := &storage.Logging{
		Version: "1.0", Read: true, RetentionPolicy: &storage.RetentionPolicy{Enabled: true, Days: &days},
	}
	check(t, client.SetServiceProperties(storage.ServiceProperties{Logging: logging}))
	found, err := client.GetServiceProperties()
	check(t, err)
	if found.Logging == nil || !found.Logging.Read || *found.Logging.RetentionPolicy.Days != days {
		t.Fatalf("%+v", found)
	}
}

func TestEntities(t *testing.T) {
	table := table(t)
	for i, level := range append(levels, storage.EmptyPayload) {
		check(t, entity(table, fmt.Sprint(i)).Insert(level, nil))
	}
	sent := entity(table, "r")
	check(t, sent.Insert(storage.EmptyPayload, nil))
	refused(t, sent.Insert(storage.EmptyPayload, nil), 409, "EntityAlreadyExists")
	read := table.GetEntityReference("p", "r")
	check(t, read.Get(30, storage.FullMetadata, nil))
	if !reflect.DeepEqual(read.Properties, sent.Properties) || read.TimeStamp.IsZero() {
		t.Fatalf("%v is %v", sent.Properties, read.Properties)
	}
	check(t, read.Get(30, storage.FullMetadata, &storage.GetEntityOptions{Select: []string{"Yes", "Long"}}))
	if !reflect.DeepEqual(read.Properties, map[string]interface{}{"Yes": true, "Long": int64(5_000_000_000)}) {
		t.Fatalf("%v", read.Properties)
	}
	check(t, sent.Delete(true, nil))
	refused(t, sent.Delete(true, nil), 404, "ResourceNotFound")
}

func TestUpdatesAndETags(t *testing.T) {
	table := table(t)
	first := entity(table, "r")
	check(t, first.InsertOrReplace(nil))
	stale := *first
	first.Properties = map[string]interface{}{"Text": "new"}
	check(t, first.Merge(false, nil))
	refused(t, stale.Update(false, nil), 412, "UpdateConditionNotSatisfied")
	check(t, first.Get(30, storage.FullMetadata, nil))
	if len(first.Properties) != 6 || first.Properties["Text"] != "new" {
		t.Fatalf("%v", first.Properties)
	}
	first.Properties = map[string]interface{}{"Only": "this"}
	check(t, first.Update(false, nil))
	first.Properties = map[string]interface{}{"More": "that"}
	check(t, first.InsertOrMerge(nil))
	check(t, first.Get(30, storage.FullMetadata, nil))
	if len(first.Properties) != 2 {
		t.Fatalf("%v", first.Properties)
	}
	refused(t, stale.Delete(false, nil), 412, "UpdateConditionNotSatisfied")
	check(t, first.Delete(false, nil))
}

func TestQueriesAndTheirPages(t *testing.T) {
	table := table(t)
	for _, row := range []string{"a", "b", "c", "d", "e"} {
		check(t, entity(table, row).Insert(storage.EmptyPayload, nil))
	}
	options := &storage.QueryOptions{Top: 2, Filter: "RowKey gt 'a' and Yes eq true", Select: []string{"RowKey", "Yes"}}
	page, err := table.QueryEntities(30, storage.FullMetadata, options)
	check(t, err)
	rows := ""
	for {
		for _, entity := range page.Entities {
			rows += entity.RowKey
		}
		if page.NextLink == nil {
			break
		}
		page, err = page.NextResults(nil)
		check(t, err)
	}
	if rows != "bcde" {
		t.Fatal(rows)
	}
}

func TestBatches(t *testing.T) {
	table := table(t)
	check(t, entity(table, "old").Insert(storage.EmptyPayload, nil))
	batch := table.NewBatch()
	batch.InsertEntity(entity(table, "1"))
	batch.InsertOrReplaceEntityByForce(entity(table, "2"))
	batch.InsertOrMergeEntityByForce(entity(table, "3"))
	batch.DeleteEntityByForce(entity(table, "old"), true)
	check(t, batch.ExecuteBatch())
	again := table.NewBatch()
	again.InsertEntity(entity(table, "4"))
	again.InsertEntity(entity(table, "1"))
	if err := again.ExecuteBatch(); err == nil || !strings.Contains(err.Error(), "EntityAlreadyExists") {
		t.Fatalf("the row is there: %v", err)
	}
	page, err := table.QueryEntities(30, storage.FullMetadata, nil)
	check(t, err)
	if len(page.Entities) != 3 {
		t.Fatalf("%d entities", len(page.Entities))
	}
}
