package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func action(kind aztables.TransactionType, row string, values properties) aztables.TransactionAction {
	return aztables.TransactionAction{ActionType: kind, Entity: entity(row, values)}
}

// conditional updates need the ETag: without one the SDK sends an upsert.
func conditional(kind aztables.TransactionType, row string, values properties, etag azcore.ETag) aztables.TransactionAction {
	return aztables.TransactionAction{ActionType: kind, Entity: entity(row, values), IfMatch: &etag}
}

// undone submits what must fail, and sees which action failed, why, and that
// nothing changed. The SDK has the answer's status, which is 202, and the part
// of the failed action only in the text of the error.
func undone(t *testing.T, ctx context.Context, table *aztables.Client, index int, code aztables.TableErrorCode, actions ...aztables.TransactionAction) {
	t.Helper()
	before := rowsOf(t, ctx, table, nil)
	_, err := table.SubmitTransaction(ctx, actions, nil)
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || answer.StatusCode != 202 {
		t.Fatalf("expected %s, got %v", code, err)
	}
	expected := fmt.Sprintf(`"code":"%s","message":{"lang":"en-US","value":"%d:`, code, index)
	if !strings.Contains(answer.Error(), expected) {
		t.Fatalf("expected %s, got %s", expected, regexp.MustCompile(`\{.*`).FindString(answer.Error()))
	}
	if after := rowsOf(t, ctx, table, nil); after != before {
		t.Fatalf("%q became %q", before, after)
	}
}

func TestEveryKindOfActionAtOnce(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	for _, row := range []string{"delete", "merge", "replace", "upmerge", "upreplace"} {
		must(table.AddEntity(ctx, entity(row, properties{"old": true}), nil))(t)
	}
	now, both := properties{"now": "it's 100% <&> ü"}, properties{"now": "it's 100% <&> ü", "old": true}
	must(table.SubmitTransaction(ctx, []aztables.TransactionAction{
		action(aztables.TransactionTypeAdd, "add", now),
		action(aztables.TransactionTypeDelete, "delete", nil),
		conditional(aztables.TransactionTypeUpdateMerge, "merge", now, azcore.ETagAny),
		conditional(aztables.TransactionTypeUpdateReplace, "replace", now, azcore.ETagAny),
		action(aztables.TransactionTypeInsertMerge, "upmerge", now),
		action(aztables.TransactionTypeInsertReplace, "upreplace", now),
		action(aztables.TransactionTypeInsertReplace, "fresh", properties{"big": aztables.EDMInt64(5), "g": guid}),
	}, nil))(t)
	for row, expected := range map[string]properties{
		"add": now, "merge": both, "replace": now, "upmerge": both, "upreplace": now,
		"fresh": {"big": aztables.EDMInt64(5), "g": guid},
	} {
		holds(t, ctx, table, row, expected)
	}
	_, err := table.GetEntity(ctx, "p", "delete", nil)
	refused(t, err, 404, aztables.ResourceNotFound)
}

func TestFailuresUndoEverythingAndNameTheAction(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	old := must(table.AddEntity(ctx, entity("taken", properties{"a": int32(1)}), nil))(t).ETag
	must(table.UpdateEntity(ctx, entity("taken", properties{"a": int32(2)}), nil))(t)
	add := action(aztables.TransactionTypeAdd, "a", nil)
	undone(t, ctx, table, 1, aztables.EntityAlreadyExists, add, action(aztables.TransactionTypeAdd, "taken", nil))
	undone(t, ctx, table, 0, aztables.EntityAlreadyExists, action(aztables.TransactionTypeAdd, "taken", nil), add)
	undone(t, ctx, table, 1, aztables.ResourceNotFound, add, action(aztables.TransactionTypeDelete, "missing", nil))
	undone(t, ctx, table, 1, aztables.ResourceNotFound, add, conditional(aztables.TransactionTypeUpdateMerge, "missing", nil, azcore.ETagAny))
	undone(t, ctx, table, 1, aztables.UpdateConditionNotSatisfied, add, conditional(aztables.TransactionTypeUpdateReplace, "taken", nil, old))
	undone(t, ctx, table, 1, aztables.UpdateConditionNotSatisfied, add, conditional(aztables.TransactionTypeDelete, "taken", nil, old))
	undone(t, ctx, table, 1, aztables.InvalidDuplicateRow, add, action(aztables.TransactionTypeInsertMerge, "a", nil))
	undone(t, ctx, table, 2, aztables.PropertyValueTooLarge, add, action(aztables.TransactionTypeAdd, "b", nil),
		action(aztables.TransactionTypeAdd, "c", properties{"s": strings.Repeat("x", 32769)}))
	holds(t, ctx, table, "taken", properties{"a": int32(2)})
}

func TestPartitionsAndTablesOfATransaction(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	other := aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd, Entity: []byte(`{"PartitionKey":"q","RowKey":"r"}`)}
	undone(t, ctx, table, 1, "CommandsInBatchActOnDifferentPartitions", action(aztables.TransactionTypeAdd, "a", nil), other)
	missing := service(t).NewClient(newName("Missing"))
	_, err := missing.SubmitTransaction(ctx, []aztables.TransactionAction{action(aztables.TransactionTypeAdd, "a", nil)}, nil)
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || !strings.Contains(answer.Error(), `"code":"TableNotFound"`) {
		t.Fatal(err)
	}
	if _, err := table.SubmitTransaction(ctx, nil, nil); err == nil {
		t.Fatal("the SDK sent an empty transaction")
	}
}

func TestKeysWithQuotesInTransactions(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	body := []byte(`{"PartitionKey":"it's","RowKey":"100% ü"}`)
	must(table.SubmitTransaction(ctx, []aztables.TransactionAction{{ActionType: aztables.TransactionTypeAdd, Entity: body}}, nil))(t)
	must(table.GetEntity(ctx, "it's", "100% ü", nil))(t)
	// The SDK does not double them in the addresses of the other actions.
	if _, err := table.SubmitTransaction(ctx, []aztables.TransactionAction{{ActionType: aztables.TransactionTypeDelete, Entity: body}}, nil); err == nil {
		t.Fatal("the SDK has learned to double quotes")
	}
}

func TestAHundredActionsAreTheMost(t *testing.T) {
	ctx := limited(t)
	table, _ := newTable(t)
	var actions []aztables.TransactionAction
	for n := range 101 {
		actions = append(actions, action(aztables.TransactionTypeInsertReplace, fmt.Sprintf("%03d", n), nil))
	}
	must(table.SubmitTransaction(ctx, actions[:100], nil))(t)
	_, err := table.SubmitTransaction(ctx, actions, nil)
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || !strings.Contains(answer.Error(), `"code":"InvalidInput"`) {
		t.Fatal(err)
	}
	if count := len(pages(t, ctx, table, &aztables.ListEntitiesOptions{Top: to.Ptr(int32(1000))})[0]); count != 100 {
		t.Fatalf("%d entities", count)
	}
}
