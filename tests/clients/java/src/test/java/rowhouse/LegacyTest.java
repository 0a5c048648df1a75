package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.microsoft.azure.storage.RetryNoRetry;
import com.microsoft.azure.storage.StorageCredentials;
import com.microsoft.azure.storage.StorageCredentialsAccountAndKey;
import com.microsoft.azure.storage.StorageException;
import com.microsoft.azure.storage.StorageUri;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.CloudTableClient;
import com.microsoft.azure.storage.table.DynamicTableEntity;
import com.microsoft.azure.storage.table.EntityProperty;
import com.microsoft.azure.storage.table.TableOperation;
import com.microsoft.azure.storage.table.TableQuery;
import java.net.URI;
import java.util.Date;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.junit.jupiter.api.function.Executable;

/** What the tests of the retired SDK share: its clients, and how to look at its answers. */
abstract class LegacyTest extends ServerTest {
    static CloudTableClient service() {
        return client(new StorageCredentialsAccountAndKey(server.account, server.keys.get(0)));
    }

    /** A client that never tries again, so that no failure is hidden. */
    static CloudTableClient client(StorageCredentials credentials) {
        URI secondary = URI.create(server.endpoint() + "-secondary");
        CloudTableClient client = new CloudTableClient(new StorageUri(URI.create(server.endpoint()), secondary), credentials);
        client.getDefaultRequestOptions().setRetryPolicyFactory(RetryNoRetry.getInstance());
        return client;
    }

    /** A table that is deleted after the test. */
    CloudTable newLegacyTable() throws Exception {
        return service().getTableReference(newTable().getTableName());
    }

    /** An entity with these properties, whose ETag is that of any. */
    static DynamicTableEntity row(String row, Map<String, Object> values) {
        DynamicTableEntity entity = new DynamicTableEntity("p", row);
        values.forEach((name, value) -> entity.getProperties().put(name, property(value)));
        entity.setEtag("*");
        return entity;
    }

    static DynamicTableEntity row(String row) {
        return row(row, Map.of());
    }

    static void insert(CloudTable table, DynamicTableEntity entity) throws StorageException {
        table.execute(TableOperation.insert(entity));
    }

    static DynamicTableEntity read(CloudTable table, String row) throws StorageException {
        return table.execute(TableOperation.retrieve("p", row, DynamicTableEntity.class)).getResultAsType();
    }

    private static EntityProperty property(Object value) {
        if (value instanceof Boolean yes) {
            return new EntityProperty(yes);
        } else if (value instanceof Integer number) {
            return new EntityProperty(number);
        } else if (value instanceof Long number) {
            return new EntityProperty(number);
        } else if (value instanceof Double number) {
            return new EntityProperty(number);
        } else if (value instanceof Date date) {
            return new EntityProperty(date);
        } else if (value instanceof UUID id) {
            return new EntityProperty(id);
        } else if (value instanceof byte[] bytes) {
            return new EntityProperty(bytes);
        }
        return new EntityProperty((String) value);
    }

    /** The properties of an entity, without the keys; binaries in hexadecimal digits. */
    static Map<String, Object> written(DynamicTableEntity entity) {
        Map<String, Object> values = new TreeMap<>();
        entity.getProperties().forEach((name, property) -> values.put(name, property.getIsNull() ? null : value(property)));
        return values;
    }

    private static Object value(EntityProperty property) {
        return switch (property.getEdmType()) {
            case BOOLEAN -> property.getValueAsBoolean();
            case INT32 -> property.getValueAsInteger();
            case INT64 -> property.getValueAsLong();
            case DOUBLE -> property.getValueAsDouble();
            case DATE_TIME -> property.getValueAsDate();
            case GUID -> property.getValueAsUUID();
            case BINARY -> HexFormat.of().formatHex(property.getValueAsByteArray());
            default -> property.getValueAsString();
        };
    }

    static TableQuery<DynamicTableEntity> query() {
        return TableQuery.from(DynamicTableEntity.class);
    }

    /** The rows that the iterator of a query finds, which requests one page after the other. */
    static String rows(CloudTable table, TableQuery<DynamicTableEntity> query) {
        StringBuilder found = new StringBuilder();
        table.execute(query).forEach(entity -> found.append(entity.getRowKey()));
        return found.toString();
    }

    static String rows(CloudTable table, String filter) {
        return rows(table, query().where(filter));
    }

    static String rows(CloudTable table) {
        return rows(table, query());
    }

    static StorageException assertFails(int status, String code, Executable attempt) {
        StorageException error = assertThrows(StorageException.class, attempt);
        assertEquals(status + " " + code, error.getHttpStatusCode() + " " + error.getErrorCode());
        return error;
    }
}
