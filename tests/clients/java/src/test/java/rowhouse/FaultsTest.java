package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.data.tables.TableClient;
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
        orders = new TableServiceClientBuilder()
            .endpoint(server.endpoint())
            .credential(server.credential())
            .buildClient()
            .createTable("Orders");
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

    private static Ended ended(Consumer<String> call, String row) {
        long begun = System.nanoTime();
        int status = 200;
        try {
            call.accept(row);
        } catch (TableServiceException error) {
            status = error.getResponse().getStatusCode();
        } catch (RuntimeException error) {
            status = 0;
        }
        return new Ended(status, (System.nanoTime() - begun) / 1_000_000);
    }

    @Test
    void aLostAnswer() throws Exception {
        order("[{\"operation\": \"InsertEntity\", \"then\": {\"drop\": \"after\"}}]");
        assertThrows(TableServiceException.class, () -> orders.createEntity(new TableEntity("p", "1"))); // 409
        assertEquals("1", orders.getEntity("p", "1").getRowKey());
        assertEquals(List.of(2), counted());
    }

    @Test
    void whatIsRepeatedAndHowOften() throws Exception {
        Consumer<String> insert = row -> orders.createEntity(new TableEntity("p", row));
        Consumer<String> get = row -> orders.getEntity("p", row);
        Consumer<String> update = row -> orders.updateEntity(new TableEntity("p", row));
        List.of("stale", "read").forEach(insert);
        order("""
            [{"row": "busy", "times": 9, "then": {"error": "ServerBusy"}},
             {"row": "timeout", "times": 9, "then": {"error": "OperationTimedOut"}},
             {"row": "error", "times": 9, "then": {"error": "InternalError"}},
             {"row": "slow", "operation": "InsertEntity", "times": 9, "then": {"error": "RequestTimedOut"}},
             {"row": "dropped", "times": 9, "then": {"drop": "before"}},
             {"row": "read", "times": 9, "then": {"drop": "before"}},
             {"row": "stale", "operation": "MergeEntity", "times": 9, "then": {"error": "UpdateConditionNotSatisfied"}},
             {"row": "once", "then": {"error": "ServerBusy"}}]""");
        List<String> rows = List.of("busy", "timeout", "error", "slow", "dropped", "read", "stale", "once");
        List<Integer> statuses = List.of(503, 500, 500, 408, 0, 0, 412, 200);
        // 0.8, 1.6 and 3.2 seconds, a twentieth more or less; a busy server says when.
        List<Integer> atLeast = List.of(3000, 5000, 5000, 5000, 5000, 5000, 0, 1000);
        Map<String, Consumer<String>> others = Map.of("read", get, "stale", update);
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<Ended>> calls = new ArrayList<>();
            for (String row : rows) {
                calls.add(threads.submit(() -> ended(others.getOrDefault(row, insert), row)));
            }
            for (int at = 0; at < rows.size(); at++) {
                Ended ended = calls.get(at).get();
                assertEquals(statuses.get(at), ended.status(), rows.get(at));
                assertTrue(ended.milliseconds() >= atLeast.get(at), rows.get(at) + " " + ended);
            }
        } finally {
            threads.shutdown();
        }
        assertEquals(List.of(4, 4, 4, 4, 4, 4, 1, 2), counted());
    }
}
