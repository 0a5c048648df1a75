package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** Filters and an order that the service lacks, for an account that has extended queries. */
class ExtendedQueriesTest {
    private static Server server;

    @BeforeAll
    static void startServer() throws Exception {
        String account = ServerTest.newName("java");
        server = new Server(account, List.of(Server.newKey()), Map.of("ROWHOUSE_EXTENDED_QUERIES", account));
    }

    @AfterAll
    static void stopServer() throws Exception {
        server.stop();
    }

    /** Adds $orderby to each query, which the SDK has no option for. */
    private static final class OrderBy implements HttpPipelinePolicy {
        private final String order;

        OrderBy(String order) {
            this.order = order;
        }

        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            UrlBuilder url = UrlBuilder.parse(context.getHttpRequest().getUrl());
            context.getHttpRequest().setUrl(url.setQueryParameter("$orderby", order).toString());
            return next.process();
        }
    }

    private static String filled(String name) {
        TableClient table = server.service().createTable(name);
        List<String> names = List.of("Smith", "smart", "Jones");
        for (int at = 0; at < names.size(); at++) {
            table.createEntity(new TableEntity("p", "" + at).addProperty("Name", names.get(at)));
        }
        return name;
    }

    private static String rows(TableClient table, ListEntitiesOptions options) {
        return table.listEntities(options, null, null).stream().map(TableEntity::getRowKey).collect(Collectors.joining());
    }

    @Test
    void filters() {
        TableClient table = server.service().getTableClient(filled("Filters"));
        Map<String, String> expected = Map.of(
            "startswith(Name,'Sm')", "0",
            "contains(tolower(Name),'sm')", "01",
            "RowKey in ('0','2')", "02",
            "Number eq null", "012");
        expected.forEach((filter, found) ->
            assertEquals(found, rows(table, new ListEntitiesOptions().setFilter(filter)), filter));
        ServerTest.assertRefused(501, "NotImplemented", () ->
            rows(table, new ListEntitiesOptions().setFilter("length(Name) eq 5")));
    }

    private static TableClient ordered(String table, String order) {
        return server.builder()
            .credential(server.credential())
            .addPolicy(new OrderBy(order))
            .buildClient()
            .getTableClient(table);
    }

    /** Makes an index over a property, and waits until the server uses it. */
    private static void makeIndex(String table, String name) throws Exception {
        server.command("index", "create", table, name, "--account", server.account, "--yes");
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (true) {
            try {
                rows(ordered(table, name), new ListEntitiesOptions());
                return;
            } catch (HttpResponseException refused) {
                if (refused.getResponse().getStatusCode() != 501 || System.nanoTime() > end) {
                    throw refused;
                }
            }
            Thread.sleep(100);
        }
    }

    @Test
    void orderOfAProperty() throws Exception {
        TableClient table = server.service().createTable("Logs");
        OffsetDateTime start = OffsetDateTime.parse("2024-05-01T12:00:00Z");
        for (int at = 0; at < 20; at++) {
            OffsetDateTime created = start.plusMinutes(at * 7 % 20);
            table.createEntity(new TableEntity("p" + at % 3, "" + at).addProperty("Created", created));
        }
        makeIndex("Logs", "Created");
        List<List<Object>> pages = ordered("Logs", "Created%20desc")
            .listEntities(new ListEntitiesOptions().setTop(15), null, null)
            .streamByPage()
            .map(page -> page.getValue().stream().map(entity -> entity.getProperty("Created")).toList())
            .toList();
        List<Object> newest = IntStream.range(0, 20).<Object>mapToObj(at -> start.plusMinutes(19 - at)).toList();
        assertEquals(List.of(newest.subList(0, 15), newest.subList(15, 20)), pages);
    }

    @Test
    void descendingOrder() {
        TableClient table = ordered(filled("Ordered"), "PartitionKey%20desc,RowKey%20desc");
        assertEquals("210", rows(table, new ListEntitiesOptions().setTop(2)));
    }
}
