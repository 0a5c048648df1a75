package containers

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/azurite"
	"github.com/testcontainers/testcontainers-go/wait"
)

const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

func TestAzuriteModule(t *testing.T) {
	ctx := context.Background()
	storage, err := azurite.Run(ctx, "rowhouse-azurite")
	testcontainers.CleanupContainer(t, storage)
	if err != nil {
		t.Fatal(err)
	}
	address, err := storage.PortEndpoint(ctx, "10002/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	use(ctx, t, address)
}

func TestGenericContainer(t *testing.T) {
	ctx := context.Background()
	container, err := testcontainers.Run(ctx, "rowhouse",
		testcontainers.WithExposedPorts("10002/tcp"),
		testcontainers.WithEnv(map[string]string{
			"DATABASE_URL":                       "sqlite::memory:",
			"ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT": "true",
		}),
		testcontainers.WithWaitStrategy(wait.ForLog("Rowhouse is ready at")))
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	address, err := container.PortEndpoint(ctx, "10002/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	use(ctx, t, address)
}

// use writes and reads by the SDK.
func use(ctx context.Context, t *testing.T, address string) {
	credential, err := aztables.NewSharedKeyCredential("devstoreaccount1", key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := aztables.NewClientWithSharedKey(address+"/devstoreaccount1/People", credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateTable(ctx, nil); err != nil {
		t.Fatal(err)
	}
	entity := []byte(`{"PartitionKey":"p","RowKey":"r","Age":33}`)
	if _, err := client.AddEntity(ctx, entity, nil); err != nil {
		t.Fatal(err)
	}
	found, err := client.GetEntity(ctx, "p", "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Age int }
	if err := json.Unmarshal(found.Value, &read); err != nil || read.Age != 33 {
		t.Fatalf("%s: %v", found.Value, err)
	}
}
