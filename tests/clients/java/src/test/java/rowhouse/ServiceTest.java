package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.models.TableServiceCorsRule;
import com.azure.data.tables.models.TableServiceGeoReplicationStatus;
import com.azure.data.tables.models.TableServiceLogging;
import com.azure.data.tables.models.TableServiceMetrics;
import com.azure.data.tables.models.TableServiceProperties;
import com.azure.data.tables.models.TableServiceRetentionPolicy;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import org.junit.jupiter.api.Test;

class ServiceTest extends ServerTest {
    @Test
    void propertiesComeBack() {
        TableServiceClient service = server.service();
        var retention = new TableServiceRetentionPolicy().setEnabled(true).setDaysToRetain(7);
        var rule = new TableServiceCorsRule().setAllowedOrigins("http://a.example").setAllowedMethods("GET,PUT")
            .setAllowedHeaders("x-ms-*").setExposedHeaders("*").setMaxAgeInSeconds(60);
        var metrics = new TableServiceMetrics().setVersion("1.0").setEnabled(true).setIncludeApis(true).setRetentionPolicy(retention);
        service.setProperties(new TableServiceProperties()
            .setLogging(new TableServiceLogging().setAnalyticsVersion("1.0").setReadLogged(true).setDeleteLogged(true)
                .setRetentionPolicy(retention))
            .setHourMetrics(metrics).setMinuteMetrics(metrics)
            .setCorsRules(List.of(rule)));
        TableServiceProperties found = service.getProperties();
        assertEquals(List.of(true, false, true), List.of(found.getLogging().isReadLogged(),
            found.getLogging().isWriteLogged(), found.getLogging().isDeleteLogged()));
        assertEquals(7, found.getLogging().getRetentionPolicy().getDaysToRetain());
        assertTrue(found.getHourMetrics().isEnabled());
        assertTrue(found.getMinuteMetrics().isIncludeApis());
        TableServiceCorsRule back = found.getCorsRules().get(0);
        assertEquals(List.of("http://a.example", "GET,PUT", "x-ms-*", "*", 60), List.of(back.getAllowedOrigins(),
            back.getAllowedMethods(), back.getAllowedHeaders(), back.getExposedHeaders(), back.getMaxAgeInSeconds()));
        assertRefused(400, "InvalidXmlNodeValue", () -> service.setProperties(
            new TableServiceProperties().setCorsRules(List.of(rule.setAllowedMethods("FETCH")))));
    }

    @Test
    void statisticsComeFromTheSecondary() {
        assertRefused(400, "InvalidQueryParameterValue", () -> server.service().getStatistics());
        TableServiceClient secondary = server.builder().endpoint(server.endpoint() + "-secondary")
            .credential(server.credential()).buildClient();
        var found = secondary.getStatistics().getGeoReplication();
        assertEquals(TableServiceGeoReplicationStatus.LIVE, found.getStatus());
        assertTrue(Duration.between(found.getLastSyncTime(), OffsetDateTime.now()).abs().toMinutes() < 5);
        assertRefused(403, "InsufficientAccountPermissions", () -> secondary.createTable(newName("T")));
    }
}
