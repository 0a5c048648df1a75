package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpHeaderName;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableServiceError;
import com.azure.data.tables.models.TableServiceException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.function.Executable;

/** What the tests of one class share: a server, and how to look at answers. */
abstract class ServerTest {
    static Server server;
    private static final HttpHeaderName ERROR_CODE = HttpHeaderName.fromString("x-ms-error-code");
    private static final Pattern CODE = Pattern.compile("\"code\":\"(\\w+)\"");
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private final List<TableClient> tables = new ArrayList<>();

    @BeforeAll
    static void startServer() throws Exception {
        server = new Server();
    }

    @AfterAll
    static void stopServer() throws Exception {
        server.stop();
    }

    @AfterEach
    void deleteTables() {
        tables.forEach(TableClient::deleteTable);
    }

    /** A table name that no other test uses. */
    static String newName(String prefix) {
        return String.format("%s%dx%04d", prefix, ProcessHandle.current().pid(), NUMBERS.incrementAndGet());
    }

    /** A table that is deleted after the test. */
    TableClient newTable() {
        TableClient table = server.service().createTable(newName("T"));
        tables.add(table);
        return table;
    }

    static TableEntity entity(String row) {
        return new TableEntity("p", row);
    }

    /** What of an entity its writer wrote, without the keys. */
    static Map<String, Object> written(TableEntity entity) {
        Map<String, Object> values = new TreeMap<>(entity.getProperties());
        values.keySet().removeIf(name ->
            name.startsWith("odata.") || name.contains("@odata.") || List.of("PartitionKey", "RowKey", "Timestamp").contains(name));
        return values;
    }

    static String rows(TableClient table, String filter) {
        StringBuilder found = new StringBuilder();
        table.listEntities(new ListEntitiesOptions().setFilter(filter), null, null).forEach(e -> found.append(e.getRowKey()));
        return found.toString();
    }

    static void assertRefused(int status, String code, Executable attempt) {
        HttpResponseException error = assertThrows(HttpResponseException.class, attempt);
        assertEquals(status + " " + code, error.getResponse().getStatusCode() + " " + code(error));
    }

    /**
     * The service's code. Lists throw an exception that is not public, and the SDK does not look for a code in XML.
     */
    static String code(HttpResponseException error) {
        if (error instanceof TableServiceException && error.getValue() instanceof TableServiceError value) {
            return value.getErrorCode().toString();
        }
        String header = error.getResponse().getHeaderValue(ERROR_CODE);
        var inText = CODE.matcher(error.getMessage());
        return header == null && inText.find() ? inText.group(1) : header;
    }
}
