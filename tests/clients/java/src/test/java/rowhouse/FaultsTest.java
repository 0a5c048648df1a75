package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableServiceException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * Faults that a test orders, and what the SDK does about them by its own retry policy: what docs/how-to/test-suites.md
 * says of both.
 */
class FaultsTest {
    private static Server server;
    private static String admin;
    private static TableServiceClient service;
    private static TableClient orders;

    /** How a call ended, and after how many milliseconds. */
    private record Ended(int status, long milliseconds) {
    }

    @BeforeAll
    static void startServer() throws Exception {
        Map<String, String> settings =
            Map.of("ROWHOUSE_ADMIN_LISTEN", "127.0.0.1:0", "ROWHOUSE_TEST_MODE", "true");
        server = new Server(ServerTest.newName("java"), List.of(Server.newKey()), settings);
        admin = server.admin();
        service = new TableServiceClientBuilder()
            .endpoint(server.endpoint())
            .credential(server.credential())
            .buildClient();
        orders = service.createTable("Orders");
    }

    @AfterAll
    static void stopServer() throws Exception {
        server.stop();
    }

    static void order(String rules) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(admin + "/test/faults"))
            .PUT(HttpRequest.BodyPublishers.ofString(rules)).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, answer.statusCode(), answer.body());
    }

    private static List<Integer> counted() throws Exception {
        var request = HttpRequest.newBuilder(URI.create(admin + "/test/faults")).build();
        String listed = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
        var counts = Pattern.compile("\"matched\":(\\d+)").matcher(listed);
        return counts.results().map(one -> Integer.valueOf(one.group(1))).toList();
    }

    private static Ended ended(Consumer<String> call, String table) {
        long begun = System.nanoTime();
        int status = 200;
        try {
            call.accept(table);
        } catch (TableServiceException error) {
            status = error.getResponse().getStatusCode();
        } catch (RuntimeException error) {
            status = 0;
        }
        return new Ended(status, (System.nanoTime() - begun) / 1_000_000);
    }

    @Test
    void aLostAnswer() throws Exception {
        order("[{\"operation\": \"InsertEntity\", \"disconnect\": \"after\"}]");
        assertThrows(TableServiceException.class, () -> orders.createEntity(new TableEntity("p", "1"))); // 409
        assertEquals("1", orders.getEntity("p", "1").getRowKey());
        assertEquals(List.of(2), counted());
    }

    @Test
    void shortPagesAreFollowed() throws Exception {
        TableClient pages = service.createTable("Pages");
        List.of("a", "b", "c").forEach(row -> pages.createEntity(new TableEntity("p", row)));
        order("[{\"table\": \"Pages\", \"page\": 1, \"times\": 9}]");
        List<Integer> sizes = new ArrayList<>();
        pages.listEntities().iterableByPage().forEach(page -> sizes.add(page.getValue().size()));
        assertEquals(List.of(1, 1, 1), sizes);
        assertEquals(List.of(3), counted());
    }

    @Test
    void whatIsRepeatedAndHowOften() throws Exception {
        List<String> names = List.of("busy", "timeout", "error", "slow", "lost", "read", "stale", "once");
        names.forEach(service::createTable);
        Consumer<String> insert = name -> service.getTableClient(name).createEntity(new TableEntity("p", "1"));
        Consumer<String> get = name -> service.getTableClient(name).getEntity("p", "1");
        Consumer<String> update = name -> service.getTableClient(name).updateEntity(new TableEntity("p", "1"));
        List.of("stale", "read").forEach(insert);
        order("""
            [{"table": "busy", "times": 9, "error": "ServerBusy"},
             {"table": "timeout", "times": 9, "error": "OperationTimedOut"},
             {"table": "error", "times": 9, "error": "InternalError"},
             {"table": "slow", "times": 9, "error": "RequestTimedOut"},
             {"table": "lost", "times": 9, "disconnect": "before"},
             {"table": "read", "times": 9, "disconnect": "before"},
             {"table": "stale", "operation": "MergeEntity", "times": 9, "error": "UpdateConditionNotSatisfied"},
             {"table": "once", "error": "ServerBusy"}]""");
        List<Integer> statuses = List.of(503, 500, 500, 408, 0, 0, 412, 200);
        // 0.8, 1.6 and 3.2 seconds, a twentieth more or less; a busy server says when.
        List<Integer> atLeast = List.of(3000, 5000, 5000, 5000, 5000, 5000, 0, 1000);
        Map<String, Consumer<String>> others = Map.of("read", get, "stale", update);
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<Ended>> calls = new ArrayList<>();
            for (String name : names) {
                calls.add(threads.submit(() -> ended(others.getOrDefault(name, insert), name)));
            }
            for (int at = 0; at < names.size(); at++) {
                Ended ended = calls.get(at).get();
                assertEquals(statuses.get(at), ended.status(), names.get(at));
                assertTrue(ended.milliseconds() >= atLeast.get(at), names.get(at) + " " + ended);
            }
        } finally {
            threads.shutdown();
        }
        assertEquals(List.of(4, 4, 4, 4, 4, 4, 1, 2), counted());
    }
}
