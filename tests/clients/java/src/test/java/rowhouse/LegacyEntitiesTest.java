package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.DynamicTableEntity;
import com.microsoft.azure.storage.table.EdmType;
import com.microsoft.azure.storage.table.TableOperation;
import com.microsoft.azure.storage.table.TablePayloadFormat;
import com.microsoft.azure.storage.table.TableRequestOptions;
import com.microsoft.azure.storage.table.TableServiceEntity;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class LegacyEntitiesTest extends LegacyTest {
    /** An entity whose properties are those of a bean. */
    public static final class Customer extends TableServiceEntity {
        private String city;
        private long orders;

        public String getCity() {
            return city;
        }

        public void setCity(String city) {
            this.city = city;
        }

        public long getOrders() {
            return orders;
        }

        public void setOrders(long orders) {
            this.orders = orders;
        }
    }

    @Test
    void anEntityIsInsertedMergedReplacedAndDeleted() throws Exception {
        CloudTable table = newLegacyTable();
        assertEquals(204, table.execute(TableOperation.insert(row("r", Map.of("a", 1, "s", "x")))).getHttpStatusCode());
        assertFails(409, "EntityAlreadyExists", () -> insert(table, row("r")));
        DynamicTableEntity found = read(table, "r");
        assertEquals(Map.of("a", 1, "s", "x"), written(found));
        assertTrue(Duration.between(found.getTimestamp().toInstant(), Instant.now()).abs().toMinutes() < 1);
        table.execute(TableOperation.merge(row("r", Map.of("b", true))));
        assertEquals(Map.of("a", 1, "s", "x", "b", true), written(read(table, "r")));
        table.execute(TableOperation.replace(row("r", Map.of("c", 2))));
        assertEquals(Map.of("c", 2), written(read(table, "r")));
        table.execute(TableOperation.delete(row("r")));
        for (var late : List.of(TableOperation.merge(row("r")), TableOperation.replace(row("r")), TableOperation.delete(row("r")))) {
            assertFails(404, "ResourceNotFound", () -> table.execute(late));
        }
        assertNull(read(table, "r"));
        assertEquals(404, table.execute(TableOperation.retrieve("p", "r", DynamicTableEntity.class)).getHttpStatusCode());
    }

    @Test
    void upserts() throws Exception {
        CloudTable table = newLegacyTable();
        table.execute(TableOperation.insertOrMerge(row("r", Map.of("a", 1))));
        table.execute(TableOperation.insertOrMerge(row("r", Map.of("b", 2))));
        assertEquals(Map.of("a", 1, "b", 2), written(read(table, "r")));
        table.execute(TableOperation.insertOrReplace(row("r", Map.of("c", 3))));
        assertEquals(Map.of("c", 3), written(read(table, "r")));
        table.execute(TableOperation.insertOrReplace(row("new")));
        assertEquals("newr", rows(table));
    }

    @Test
    void unchangedEntitiesAlone() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("r", Map.of("a", 1)));
        DynamicTableEntity first = read(table, "r");
        DynamicTableEntity second = row("r", Map.of("a", 2));
        second.setEtag(first.getEtag());
        // The SDK gives the entity the ETag of what it wrote.
        String written = table.execute(TableOperation.merge(second)).getEtag();
        assertEquals(written, second.getEtag());
        assertNotEquals(first.getEtag(), written);
        for (var late : List.of(TableOperation.merge(first), TableOperation.replace(first), TableOperation.delete(first))) {
            assertFails(412, "UpdateConditionNotSatisfied", () -> table.execute(late));
        }
        assertEquals(written, read(table, "r").getEtag());
        table.execute(TableOperation.replace(second));
        table.execute(TableOperation.delete(second));
        assertEquals("", rows(table));
    }

    @ParameterizedTest
    @EnumSource
    void everyTypeGoesAndComesBack(TablePayloadFormat format) throws Exception {
        CloudTable table = newLegacyTable();
        Map<String, Object> values = new HashMap<>(Map.of(
            "string", "it's ünïcödé 😀 \" \\ \u2028", "empty", "", "yes", true, "no", false,
            "int", Integer.MIN_VALUE, "long", Long.MAX_VALUE, "double", 2.5, "two", 2.0,
            "date", Date.from(Instant.parse("2020-02-29T12:30:45.123Z")),
            "guid", UUID.fromString("c9da6455-213d-42c9-9a79-3e9149a57833")));
        values.putAll(Map.of("nan", Double.NaN, "inf", Double.POSITIVE_INFINITY, "huge", Double.MAX_VALUE));
        DynamicTableEntity entity = row("r", values);
        entity.getProperties().putAll(row("r", Map.of("binary", new byte[] {0, 1, -1})).getProperties());
        values.put("binary", "0001ff");
        Map<String, EdmType> types = new HashMap<>();
        entity.getProperties().forEach((name, property) -> types.put(name, property.getEdmType()));
        TableRequestOptions options = new TableRequestOptions();
        options.setTablePayloadFormat(format);
        // Without metadata, the program knows the types.
        options.setPropertyResolver((partition, row, name, value) -> types.get(name));
        DynamicTableEntity echoed = table.execute(TableOperation.insert(entity, true), options, null).getResultAsType();
        var retrieve = TableOperation.retrieve("p", "r", DynamicTableEntity.class);
        DynamicTableEntity found = table.execute(retrieve, options, null).getResultAsType();
        assertEquals(List.of(values, values), List.of(written(echoed), written(found)));
        assertEquals(echoed.getEtag(), found.getEtag());
    }

    @Test
    void beans() throws Exception {
        CloudTable table = newLegacyTable();
        Customer customer = new Customer();
        customer.setPartitionKey("p");
        customer.setRowKey("r");
        customer.setCity("Zürich");
        customer.setOrders(5_000_000_000L);
        table.execute(TableOperation.insert(customer));
        Customer found = table.execute(TableOperation.retrieve("p", "r", Customer.class)).getResultAsType();
        assertEquals(List.of("Zürich", 5_000_000_000L), List.of(found.getCity(), found.getOrders()));
        assertEquals(customer.getEtag(), found.getEtag());
    }

    @ParameterizedTest
    @ValueSource(strings = {"it's", "''", "a b", "ü日本😀", "100%", "%41", "a+b", "a&b=c", "a;b,c", "(x)"})
    void keysOfAnyCharactersThatAreAllowed(String key) throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row(key, Map.of("n", 1)));
        table.execute(TableOperation.merge(row(key, Map.of("m", 2))));
        assertEquals(Map.of("n", 1, "m", 2), written(read(table, key)));
        table.execute(TableOperation.insertOrReplace(row(key, Map.of("n", 3))));
        assertEquals(key, rows(table, "RowKey eq '" + key.replace("'", "''") + "' and n eq 3"));
        table.execute(TableOperation.delete(row(key)));
        assertNull(read(table, key));
    }
}
