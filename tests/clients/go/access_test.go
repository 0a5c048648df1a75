package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Whole seconds: the SDK writes up to nine digits of a fraction into policies, and
// the service, as recorded by users of the SDKs, refuses more than seven.
var expiry = time.Now().UTC().Add(time.Hour).Truncate(time.Second)

// holder is a client of a table that only has this signature.
func holder(t *testing.T, name, signature string) *aztables.Client {
	t.Helper()
	return must(aztables.NewClientWithNoCredential(rowhouse.endpoint+"/"+name+"?"+signature, options()))(t)
}

func signed(t *testing.T, values aztables.SASSignatureValues) string {
	t.Helper()
	return must(values.Sign(credential(t, rowhouse.keys[0])))(t)
}

func accountSigned(t *testing.T, values aztables.AccountSASSignatureValues) string {
	t.Helper()
	values.Services, values.ExpiryTime = "t", expiry
	parameters := must(values.Sign(credential(t, rowhouse.keys[1])))(t)
	return parameters.Encode()
}

// allowed is what of each operation is not refused with a mismatch.
func allowed(t *testing.T, table *aztables.Client) string {
	t.Helper()
	ctx := limited(t)
	attempts := []struct {
		name string
		try  func() error
	}{
		{"get", func() error { _, err := table.GetEntity(ctx, "p", "old", nil); return err }},
		{"list", func() error { _, err := table.NewListEntitiesPager(nil).NextPage(ctx); return err }},
		{"add", func() error { _, err := table.AddEntity(ctx, entity("new", nil), nil); return err }},
		{"update", func() error { _, err := table.UpdateEntity(ctx, entity("old", nil), nil); return err }},
		{"upsert", func() error { _, err := table.UpsertEntity(ctx, entity("newer", nil), nil); return err }},
		{"delete", func() error { _, err := table.DeleteEntity(ctx, "p", "old", nil); return err }},
	}
	found := ""
	for _, attempt := range attempts {
		if err := attempt.try(); err == nil {
			found += attempt.name + " "
		} else {
			refused(t, err, 403, "AuthorizationPermissionMismatch")
		}
	}
	return found
}

func TestPermissionsOfSignatures(t *testing.T) {
	for _, example := range []struct{ permissions, expected string }{
		{"r", "get list "},
		{"a", "add "},
		{"u", "update "},
		{"d", "delete "},
		{"au", "add update upsert "},
		{"raud", "get list add update upsert delete "},
	} {
		t.Run("table "+example.permissions, func(t *testing.T) {
			table, name := newTable(t)
			must(table.AddEntity(limited(t), entity("old", nil), nil))(t)
			signature := signed(t, aztables.SASSignatureValues{TableName: name, Permissions: example.permissions, ExpiryTime: expiry})
			if found := allowed(t, holder(t, name, signature)); found != example.expected {
				t.Fatalf("allowed %q", found)
			}
		})
		t.Run("account "+example.permissions, func(t *testing.T) {
			table, name := newTable(t)
			must(table.AddEntity(limited(t), entity("old", nil), nil))(t)
			signature := accountSigned(t, aztables.AccountSASSignatureValues{Permissions: example.permissions, ResourceTypes: "o"})
			if found := allowed(t, holder(t, name, signature)); found != example.expected {
				t.Fatalf("allowed %q", found)
			}
		})
	}
}

func TestTransactionsUnderASignature(t *testing.T) {
	ctx := limited(t)
	_, name := newTable(t)
	writer := holder(t, name, signed(t, aztables.SASSignatureValues{TableName: name, Permissions: "raud", ExpiryTime: expiry}))
	must(writer.SubmitTransaction(ctx, []aztables.TransactionAction{
		action(aztables.TransactionTypeAdd, "a", nil), action(aztables.TransactionTypeInsertMerge, "b", nil),
	}, nil))(t)
	if rows := rowsOf(t, ctx, writer, nil); rows != "ab" {
		t.Fatalf("found %q", rows)
	}
}

func TestTimesAddressesAndProtocolsOfSignatures(t *testing.T) {
	ctx := limited(t)
	_, name := newTable(t)
	list := func(change func(*aztables.SASSignatureValues)) error {
		values := aztables.SASSignatureValues{TableName: name, Permissions: "r", ExpiryTime: expiry}
		change(&values)
		_, err := holder(t, name, signed(t, values)).NewListEntitiesPager(nil).NextPage(ctx)
		return err
	}
	here, elsewhere := []byte{127, 0, 0, 1}, []byte{192, 0, 2, 1}
	for _, change := range []func(*aztables.SASSignatureValues){
		func(v *aztables.SASSignatureValues) { v.StartTime = time.Now().UTC().Add(-time.Minute) },
		func(v *aztables.SASSignatureValues) { v.IPRange = aztables.IPRange{Start: here} },
		func(v *aztables.SASSignatureValues) { v.Protocol = aztables.SASProtocolHTTPSandHTTP },
	} {
		if err := list(change); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, list(func(v *aztables.SASSignatureValues) { v.ExpiryTime = time.Now().UTC().Add(-time.Minute) }), 403, "AuthenticationFailed")
	refused(t, list(func(v *aztables.SASSignatureValues) { v.StartTime = expiry.Add(-time.Minute) }), 403, "AuthenticationFailed")
	refused(t, list(func(v *aztables.SASSignatureValues) { v.TableName = "Other" }), 403, "AuthenticationFailed")
	refused(t, list(func(v *aztables.SASSignatureValues) { v.IPRange = aztables.IPRange{Start: elsewhere} }), 403, "AuthorizationSourceIPMismatch")
	refused(t, list(func(v *aztables.SASSignatureValues) { v.Protocol = aztables.SASProtocolHTTPS }), 403, "AuthorizationProtocolMismatch")
}

func TestAddressesWithSignaturesThatTheClientsMake(t *testing.T) {
	ctx := limited(t)
	_, name := newTable(t)
	// The SDK joins the endpoint and the table as they are.
	client := must(aztables.NewServiceClientWithSharedKey(rowhouse.endpoint+"/", credential(t, rowhouse.keys[0]), options()))(t)
	address := must(client.NewClient(name).GetTableSASURL(aztables.SASPermissions{Read: true, Add: true}, time.Now().UTC().Add(-time.Minute), expiry))(t)
	table := must(aztables.NewClientWithNoCredential(address, options()))(t)
	must(table.AddEntity(ctx, entity("r", nil), nil))(t)
	must(table.GetEntity(ctx, "p", "r", nil))(t)
	// It signs ranges of keys and does not send them.
	address = must(client.NewClient(name).GetTableSASURL(aztables.SASPermissions{Read: true, StartPartitionKey: "p"}, time.Now().UTC().Add(-time.Minute), expiry))(t)
	ranged := must(aztables.NewClientWithNoCredential(address, options()))(t)
	_, err := ranged.GetEntity(ctx, "p", "r", nil)
	refused(t, err, 403, "AuthenticationFailed")
	// For https alone, always.
	address = must(client.GetAccountSASURL(aztables.AccountSASResourceTypes{Container: true},
		aztables.AccountSASPermissions{List: true}, time.Now().Add(-time.Minute), expiry))(t)
	account := must(aztables.NewServiceClientWithNoCredential(address, options()))(t)
	_, err = account.NewListTablesPager(nil).NextPage(ctx)
	refused(t, err, 403, "AuthorizationProtocolMismatch")
}

func TestResourceTypesOfAccountSignatures(t *testing.T) {
	ctx := limited(t)
	client := func(permissions, types string) *aztables.ServiceClient {
		signature := accountSigned(t, aztables.AccountSASSignatureValues{Permissions: permissions, ResourceTypes: types})
		return must(aztables.NewServiceClientWithNoCredential(rowhouse.endpoint+"/?"+signature, options()))(t)
	}
	name := newName("T")
	must(client("c", "c").CreateTable(ctx, name, nil))(t)
	must(client("l", "c").NewListTablesPager(nil).NextPage(ctx))(t)
	_, err := client("rwdlacu", "o").DeleteTable(ctx, name, nil)
	refused(t, err, 403, "AuthorizationResourceTypeMismatch")
	_, err = client("l", "sco").DeleteTable(ctx, name, nil)
	refused(t, err, 403, "AuthorizationPermissionMismatch")
	must(client("d", "c").DeleteTable(ctx, name, nil))(t)
	must(client("r", "s").GetProperties(ctx, nil))(t)
}

func TestPolicies(t *testing.T) {
	ctx := limited(t)
	table, name := newTable(t)
	must(table.AddEntity(ctx, entity("old", nil), nil))(t)
	start := time.Date(2021, 3, 4, 5, 6, 7, 0, time.UTC)
	policy := func(id, permission string) *aztables.SignedIdentifier {
		return &aztables.SignedIdentifier{ID: &id, AccessPolicy: &aztables.AccessPolicy{Start: &start, Expiry: &expiry, Permission: &permission}}
	}
	acl := []*aztables.SignedIdentifier{policy("read", "r"), policy("it's <&> ü", "raud")}
	must(table.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: acl}))(t)
	found := must(table.GetAccessPolicy(ctx, nil))(t).SignedIdentifiers
	if len(found) != 2 || *found[1].ID != "it's <&> ü" || *found[1].AccessPolicy.Permission != "raud" ||
		!found[0].AccessPolicy.Start.Equal(start) || !found[0].AccessPolicy.Expiry.Equal(expiry) {
		t.Fatalf("the policies became %v", found)
	}
	reader := holder(t, name, signed(t, aztables.SASSignatureValues{TableName: name, Identifier: "read"}))
	if found := allowed(t, reader); found != "get list " {
		t.Fatalf("allowed %q", found)
	}
	_, err := holder(t, name, signed(t, aztables.SASSignatureValues{TableName: name, Identifier: "none"})).GetEntity(ctx, "p", "old", nil)
	refused(t, err, 403, "AuthenticationFailed")
	var six []*aztables.SignedIdentifier
	for n := range 6 {
		six = append(six, policy(fmt.Sprint(n), "r"))
	}
	if _, err := table.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: six}); err == nil {
		t.Fatal("six policies were accepted")
	}
	_, err = table.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: []*aztables.SignedIdentifier{
		{ID: to.Ptr("x"), AccessPolicy: &aztables.AccessPolicy{Permission: to.Ptr("dr")}},
	}})
	refused(t, err, 400, "InvalidXmlNodeValue")
	fine := time.Date(2021, 3, 4, 5, 6, 7, 123456789, time.UTC)
	bound := func(at time.Time) error {
		timed := &aztables.AccessPolicy{Start: &at, Expiry: &expiry, Permission: to.Ptr("r")}
		_, err := table.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{
			TableACL: []*aztables.SignedIdentifier{{ID: to.Ptr("timed"), AccessPolicy: timed}},
		})
		return err
	}
	refused(t, bound(fine), 400, "InvalidXmlNodeValue")
	seven := fine.Truncate(100 * time.Nanosecond)
	if err := bound(seven); err != nil {
		t.Fatal(err)
	}
	if found := must(table.GetAccessPolicy(ctx, nil))(t).SignedIdentifiers; !found[0].AccessPolicy.Start.Equal(seven) {
		t.Fatalf("the start became %v", found[0].AccessPolicy.Start)
	}
	must(table.SetAccessPolicy(ctx, nil))(t)
	if found := must(table.GetAccessPolicy(ctx, nil))(t).SignedIdentifiers; len(found) != 0 {
		t.Fatalf("%d policies stayed", len(found))
	}
	_, err = reader.GetEntity(ctx, "p", "old", nil)
	refused(t, err, 403, "AuthenticationFailed")
}
