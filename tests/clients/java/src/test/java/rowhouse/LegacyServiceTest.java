package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.microsoft.azure.storage.CorsHttpMethods;
import com.microsoft.azure.storage.CorsRule;
import com.microsoft.azure.storage.GeoReplicationStatus;
import com.microsoft.azure.storage.LocationMode;
import com.microsoft.azure.storage.LoggingOperations;
import com.microsoft.azure.storage.MetricsLevel;
import com.microsoft.azure.storage.ServiceProperties;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.CloudTableClient;
import java.time.Duration;
import java.time.Instant;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LegacyServiceTest extends LegacyTest {
    @Test
    void propertiesComeBack() throws Exception {
        CloudTableClient service = service();
        ServiceProperties sent = new ServiceProperties();
        sent.getLogging().setLogOperationTypes(EnumSet.of(LoggingOperations.READ, LoggingOperations.DELETE));
        sent.getLogging().setRetentionIntervalInDays(7);
        sent.getHourMetrics().setMetricsLevel(MetricsLevel.SERVICE);
        sent.getMinuteMetrics().setMetricsLevel(MetricsLevel.SERVICE_AND_API);
        CorsRule rule = new CorsRule();
        rule.setAllowedOrigins(List.of("http://a.example"));
        rule.setAllowedMethods(EnumSet.of(CorsHttpMethods.GET, CorsHttpMethods.MERGE));
        rule.setAllowedHeaders(List.of("x-ms-*"));
        rule.setExposedHeaders(List.of("*"));
        rule.setMaxAgeInSeconds(60);
        sent.getCors().getCorsRules().add(rule);
        service.uploadServiceProperties(sent);
        ServiceProperties found = service.downloadServiceProperties();
        assertEquals(sent.getLogging().getLogOperationTypes(), found.getLogging().getLogOperationTypes());
        assertEquals(7, found.getLogging().getRetentionIntervalInDays());
        assertEquals(List.of(MetricsLevel.SERVICE, MetricsLevel.SERVICE_AND_API),
            List.of(found.getHourMetrics().getMetricsLevel(), found.getMinuteMetrics().getMetricsLevel()));
        CorsRule back = found.getCors().getCorsRules().get(0);
        assertEquals(List.of(rule.getAllowedOrigins(), rule.getAllowedMethods(), rule.getAllowedHeaders(),
                rule.getExposedHeaders(), 60),
            List.of(back.getAllowedOrigins(), back.getAllowedMethods(), back.getAllowedHeaders(),
                back.getExposedHeaders(), back.getMaxAgeInSeconds()));
        // What is null is not sent, and so it stays.
        ServiceProperties hours = new ServiceProperties();
        hours.setLogging(null);
        hours.setMinuteMetrics(null);
        hours.setCors(null);
        service.uploadServiceProperties(hours);
        found = service.downloadServiceProperties();
        assertEquals(MetricsLevel.DISABLED, found.getHourMetrics().getMetricsLevel());
        assertEquals(MetricsLevel.SERVICE_AND_API, found.getMinuteMetrics().getMetricsLevel());
        assertEquals(1, found.getCors().getCorsRules().size());
    }

    @Test
    void theSecondaryIsReadAndHasStatistics() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("r", Map.of("n", 1)));
        CloudTableClient secondary = service();
        secondary.getDefaultRequestOptions().setLocationMode(LocationMode.SECONDARY_ONLY);
        var found = secondary.getServiceStats().getGeoReplication();
        assertEquals(GeoReplicationStatus.LIVE, found.getStatus());
        assertTrue(Duration.between(found.getLastSyncTime().toInstant(), Instant.now()).abs().toMinutes() < 5);
        assertEquals(Map.of("n", 1), written(read(secondary.getTableReference(table.getName()), "r")));
    }
}
