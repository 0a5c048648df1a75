package client

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

type properties = map[string]any

const guid = aztables.EDMGUID("c9da6455-213d-42c9-9a79-3e9149a57833")

// entity is the JSON of an entity of partition p.
func entity(row string, values properties) []byte {
	bytes, err := json.Marshal(aztables.EDMEntity{
		Entity: aztables.Entity{PartitionKey: "p", RowKey: row}, Properties: values,
	})
	if err != nil {
		panic(err)
	}
	return bytes
}

func decode(t *testing.T, bytes []byte) aztables.EDMEntity {
	t.Helper()
	var found aztables.EDMEntity
	if err := json.Unmarshal(bytes, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// holds sees that a row of partition p has these properties and no others.
func holds(t *testing.T, ctx context.Context, table *aztables.Client, row string, expected properties) {
	t.Helper()
	found := decode(t, must(table.GetEntity(ctx, "p", row, nil))(t).Value).Properties
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("expected %v, found %v", expected, found)
	}
}

func TestAnEntityIsAddedMergedReplacedAndDeleted(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	added := must(table.AddEntity(ctx, entity("r", properties{"a": int32(1), "s": "x"}), nil))(t)
	read := must(table.GetEntity(ctx, "p", "r", nil))(t)
	if read.ETag != added.ETag || added.ETag == "" {
		t.Fatalf("added as %q, read as %q", added.ETag, read.ETag)
	}
	if age := time.Since(time.Time(decode(t, read.Value).Timestamp)).Abs(); age > time.Minute {
		t.Fatalf("the timestamp is %s off", age)
	}
	_, err := table.AddEntity(ctx, entity("r", nil), nil)
	refused(t, err, 409, aztables.EntityAlreadyExists)
	must(table.UpdateEntity(ctx, entity("r", properties{"b": true}), nil))(t)
	holds(t, ctx, table, "r", properties{"a": int32(1), "s": "x", "b": true})
	replace := &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeReplace}
	must(table.UpdateEntity(ctx, entity("r", properties{"c": int32(2)}), replace))(t)
	holds(t, ctx, table, "r", properties{"c": int32(2)})
	must(table.DeleteEntity(ctx, "p", "r", nil))(t)
	_, err = table.GetEntity(ctx, "p", "r", nil)
	refused(t, err, 404, aztables.ResourceNotFound)
	_, err = table.DeleteEntity(ctx, "p", "r", nil)
	refused(t, err, 404, aztables.ResourceNotFound)
	_, err = table.UpdateEntity(ctx, entity("r", nil), nil)
	refused(t, err, 404, aztables.ResourceNotFound)
}

func TestUpserts(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	must(table.UpsertEntity(ctx, entity("r", properties{"a": int32(1)}), nil))(t)
	must(table.UpsertEntity(ctx, entity("r", properties{"b": int32(2)}), nil))(t)
	holds(t, ctx, table, "r", properties{"a": int32(1), "b": int32(2)})
	replace := &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}
	must(table.UpsertEntity(ctx, entity("r", properties{"c": int32(3)}), replace))(t)
	holds(t, ctx, table, "r", properties{"c": int32(3)})
	must(table.UpsertEntity(ctx, entity("new", nil), replace))(t)
	holds(t, ctx, table, "new", properties{})
}

func TestETags(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	first := must(table.AddEntity(ctx, entity("r", properties{"a": int32(1)}), nil))(t).ETag
	second := must(table.UpdateEntity(ctx, entity("r", properties{"a": int32(2)}),
		&aztables.UpdateEntityOptions{IfMatch: &first, UpdateMode: aztables.UpdateModeMerge}))(t).ETag
	if first == second {
		t.Fatal("the ETag stayed")
	}
	for _, mode := range aztables.PossibleUpdateModeValues() {
		_, err := table.UpdateEntity(ctx, entity("r", nil), &aztables.UpdateEntityOptions{IfMatch: &first, UpdateMode: mode})
		refused(t, err, 412, aztables.UpdateConditionNotSatisfied)
	}
	_, err := table.DeleteEntity(ctx, "p", "r", &aztables.DeleteEntityOptions{IfMatch: &first})
	refused(t, err, 412, aztables.UpdateConditionNotSatisfied)
	must(table.UpdateEntity(ctx, entity("r", nil),
		&aztables.UpdateEntityOptions{IfMatch: to.Ptr(azcore.ETagAny), UpdateMode: aztables.UpdateModeMerge}))(t)
	_, err = table.DeleteEntity(ctx, "p", "r", &aztables.DeleteEntityOptions{IfMatch: &second})
	refused(t, err, 412, aztables.UpdateConditionNotSatisfied)
	must(table.DeleteEntity(ctx, "p", "r", &aztables.DeleteEntityOptions{IfMatch: to.Ptr(azcore.ETagAny)}))(t)
}

func TestKeysOfAnyCharactersThatAreAllowed(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	for _, key := range []string{"it's", "''", "a b", "ü日本😀", "100%", "%41", "a+b", "a&b=c", "a;b,c", "(x)"} {
		t.Run(key, func(t *testing.T) {
			// Not an EDMEntity, which doubles the quotes of its keys when it is encoded.
			body, _ := json.Marshal(properties{"PartitionKey": key, "RowKey": key, "n": 1})
			must(table.AddEntity(ctx, body, nil))(t)
			must(table.UpdateEntity(ctx, body, nil))(t)
			found := decode(t, must(table.GetEntity(ctx, key, key, nil))(t).Value)
			if found.PartitionKey != key || found.RowKey != key || found.Properties["n"] != int32(1) {
				t.Fatalf("found %v", found)
			}
			must(table.DeleteEntity(ctx, key, key, nil))(t)
		})
	}
	for _, key := range []string{"a/b", `a\b`, "a#b", "a?b"} {
		_, err := table.AddEntity(ctx, entity(key, nil), nil)
		refused(t, err, 400, aztables.OutOfRangeInput)
	}
}

func TestEmptyKeys(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	must(table.AddEntity(ctx, entity("", nil), nil))(t)
	must(table.GetEntity(ctx, "p", "", nil))(t)
	must(table.AddEntity(ctx, []byte(`{"PartitionKey":"","RowKey":""}`), nil))(t)
	if rows := pages(t, ctx, table, nil); len(rows[0]) != 2 {
		t.Fatalf("found %v", rows)
	}
	// One entity with an empty PartitionKey is asked for by a filter: GetEntity
	// refuses to.
	if rows := pages(t, ctx, table, &aztables.ListEntitiesOptions{Filter: to.Ptr("PartitionKey eq ''")}); len(rows[0]) != 1 {
		t.Fatalf("found %v", rows)
	}
	if _, err := table.GetEntity(ctx, "", "", nil); err == nil {
		t.Fatal("the SDK has learned to ask for empty keys")
	}
}

func TestEveryTypeGoesAndComesBack(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	values := properties{
		"string": "it's ünïcödé 😀 \" \\ \u2028", "empty": "",
		"yes": true, "no": false,
		"int": int32(-5), "most": int32(math.MaxInt32), "least": int32(math.MinInt32),
		"double": 2.5, "tiny": math.SmallestNonzeroFloat64, "huge": math.MaxFloat64,
		"big": aztables.EDMInt64(math.MaxInt64), "small": aztables.EDMInt64(math.MinInt64),
		"date": aztables.EDMDateTime(time.Date(2020, 2, 29, 12, 30, 45, 123456700, time.UTC)),
		"guid": guid, "binary": aztables.EDMBinary{0, 1, 255}, "nothing": aztables.EDMBinary{},
	}
	must(table.AddEntity(ctx, entity("r", values), nil))(t)
	holds(t, ctx, table, "r", values)
	page := must(table.NewListEntitiesPager(nil).NextPage(ctx))(t)
	if found := decode(t, page.Entities[0]).Properties; !reflect.DeepEqual(found, values) {
		t.Fatalf("listed as %v", found)
	}
}

func TestDoublesThatLookLikeSomethingElse(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	// The SDK has no type for these: the annotations are the caller's.
	must(table.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"r",
		"nan":"NaN","nan@odata.type":"Edm.Double","inf":"Infinity","inf@odata.type":"Edm.Double",
		"neg":"-Infinity","neg@odata.type":"Edm.Double","two":2,"two@odata.type":"Edm.Double"}`), nil))(t)
	var found properties
	if err := json.Unmarshal(must(table.GetEntity(ctx, "p", "r", nil))(t).Value, &found); err != nil {
		t.Fatal(err)
	}
	if found["nan"] != "NaN" || found["inf"] != "Infinity" || found["neg"] != "-Infinity" || found["two"] != 2.0 {
		t.Fatalf("found %v", found)
	}
	// An Int32 would not be above 1.5.
	if rows := rowsOf(t, ctx, table, &aztables.ListEntitiesOptions{Filter: to.Ptr("two gt 1.5")}); rows != "r" {
		t.Fatalf("found %q", rows)
	}
}

func TestMetadata(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	added := must(table.AddEntity(ctx, entity("r", properties{"g": guid}), &aztables.AddEntityOptions{Format: to.Ptr(aztables.MetadataFormatFull)}))(t)
	full := decode(t, added.Value)
	if full.ID == "" || full.EditLink == "" || full.Type == "" || full.ETag != string(added.ETag) {
		t.Fatalf("incomplete: %v", full)
	}
	none := decode(t, must(table.GetEntity(ctx, "p", "r", &aztables.GetEntityOptions{Format: to.Ptr(aztables.MetadataFormatNone)}))(t).Value)
	if none.Metadata != "" || none.Properties["g"] != string(guid) {
		t.Fatalf("too much: %v", none)
	}
}

func TestLimits(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	long := make([]byte, 32769)
	for i := range long {
		long[i] = 'x'
	}
	many := properties{}
	for n := range 253 {
		many["p"+string(rune('a'+n/26))+string(rune('a'+n%26))] = int32(n)
	}
	for code, values := range map[aztables.TableErrorCode]properties{
		aztables.TooManyProperties:     many,
		aztables.PropertyValueTooLarge: {"s": string(long)},
		aztables.PropertyNameTooLong:   {string(long[:256]): int32(1)},
		aztables.InvalidInput:          {"g": aztables.EDMGUID("no")},
	} {
		_, err := table.AddEntity(ctx, entity("r", values), nil)
		refused(t, err, 400, code)
	}
}

func TestOneOfManyAddsWins(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	var group sync.WaitGroup
	errs := make([]error, 16)
	for n := range errs {
		group.Add(1)
		go func() {
			defer group.Done()
			_, errs[n] = table.AddEntity(ctx, entity("r", properties{"n": int32(n)}), nil)
		}()
	}
	group.Wait()
	winners := 0
	for _, err := range errs {
		var answer *azcore.ResponseError
		if err == nil {
			winners++
		} else if !errors.As(err, &answer) || answer.StatusCode != 409 {
			t.Fatal(err)
		}
	}
	if winners != 1 {
		t.Fatalf("%d adds won", winners)
	}
}
