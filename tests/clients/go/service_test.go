package client

import (
	"reflect"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func TestPropertiesComeBackAndTheRestStays(t *testing.T) {
	ctx, client := limited(t), service(t)
	retention := &aztables.RetentionPolicy{Enabled: to.Ptr(true), Days: to.Ptr(int32(7))}
	logging := &aztables.Logging{
		Version: to.Ptr("1.0"), Read: to.Ptr(true), Write: to.Ptr(false), Delete: to.Ptr(true), RetentionPolicy: retention,
	}
	metrics := &aztables.Metrics{
		Version: to.Ptr("1.0"), Enabled: to.Ptr(true), IncludeAPIs: to.Ptr(true), RetentionPolicy: retention,
	}
	must(client.SetProperties(ctx, aztables.ServiceProperties{Logging: logging, HourMetrics: metrics, MinuteMetrics: metrics}, nil))(t)
	rule := &aztables.CorsRule{
		AllowedOrigins: to.Ptr("http://a.example"), AllowedMethods: to.Ptr("GET,PUT"),
		AllowedHeaders: to.Ptr("x-ms-*"), ExposedHeaders: to.Ptr("*"), MaxAgeInSeconds: to.Ptr(int32(60)),
	}
	must(client.SetProperties(ctx, aztables.ServiceProperties{Cors: []*aztables.CorsRule{rule}}, nil))(t)
	found := must(client.GetProperties(ctx, nil))(t).ServiceProperties
	expected := aztables.ServiceProperties{
		Logging: logging, HourMetrics: metrics, MinuteMetrics: metrics, Cors: []*aztables.CorsRule{rule},
	}
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("the properties became %+v", found)
	}
	rule.AllowedMethods = to.Ptr("FETCH")
	_, err := client.SetProperties(ctx, aztables.ServiceProperties{Cors: []*aztables.CorsRule{rule}}, nil)
	refused(t, err, 400, "InvalidXmlNodeValue")
}

func TestStatisticsComeFromTheSecondary(t *testing.T) {
	ctx := limited(t)
	_, err := service(t).GetStatistics(ctx, nil)
	refused(t, err, 400, "InvalidQueryParameterValue")
	secondary := must(aztables.NewServiceClientWithSharedKey(rowhouse.endpoint+"-secondary", credential(t, rowhouse.keys[0]), options()))(t)
	found := must(secondary.GetStatistics(ctx, nil))(t).GeoReplication
	if *found.Status != aztables.GeoReplicationStatusLive || time.Since(*found.LastSyncTime).Abs() > 5*time.Minute {
		t.Fatalf("the statistics are %v", found)
	}
	_, err = secondary.CreateTable(ctx, newName("T"), nil)
	refused(t, err, 403, "InsufficientAccountPermissions")
}
