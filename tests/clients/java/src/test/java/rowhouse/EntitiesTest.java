package rowhouse;

import static com.azure.data.tables.models.TableEntityUpdateMode.MERGE;
import static com.azure.data.tables.models.TableEntityUpdateMode.REPLACE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableEntityUpdateMode;
import com.azure.data.tables.models.TableServiceException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class EntitiesTest extends ServerTest {
    @Test
    void anEntityIsCreatedMergedReplacedAndDeleted() {
        TableClient table = newTable();
        table.createEntity(entity("r").addProperty("a", 1).addProperty("s", "x"));
        TableEntity read = table.getEntity("p", "r");
        assertEquals(Map.of("a", 1, "s", "x"), written(read));
        assertTrue(Duration.between(read.getTimestamp(), OffsetDateTime.now()).abs().toMinutes() < 1);
        assertRefused(409, "EntityAlreadyExists", () -> table.createEntity(entity("r")));
        table.updateEntity(entity("r").addProperty("b", true));
        assertEquals(Map.of("a", 1, "s", "x", "b", true), written(table.getEntity("p", "r")));
        table.updateEntity(entity("r").addProperty("c", 2), REPLACE);
        assertEquals(Map.of("c", 2), written(table.getEntity("p", "r")));
        assertEquals(Map.of("c", 2), written(table.getEntityWithResponse("p", "r", List.of("c"), null, null).getValue()));
        table.deleteEntity("p", "r");
        assertRefused(404, "ResourceNotFound", () -> table.getEntity("p", "r"));
        assertRefused(404, "ResourceNotFound", () -> table.updateEntity(entity("r")));
        // The SDK hides the 404.
        assertEquals(404, table.deleteEntityWithResponse(entity("r"), false, null, null).getStatusCode());
    }

    @Test
    void upserts() {
        TableClient table = newTable();
        table.upsertEntity(entity("r").addProperty("a", 1));
        table.upsertEntity(entity("r").addProperty("b", 2));
        assertEquals(Map.of("a", 1, "b", 2), written(table.getEntity("p", "r")));
        table.upsertEntityWithResponse(entity("r").addProperty("c", 3), REPLACE, null, null);
        assertEquals(Map.of("c", 3), written(table.getEntity("p", "r")));
        table.upsertEntityWithResponse(entity("new"), REPLACE, null, null);
        assertEquals("newr", rows(table, null));
    }

    @Test
    void unchangedEntitiesAlone() {
        TableClient table = newTable();
        table.createEntity(entity("r").addProperty("a", 1));
        TableEntity first = table.getEntity("p", "r");
        table.updateEntityWithResponse(first.addProperty("a", 2), MERGE, true, null, null);
        TableEntity second = table.getEntity("p", "r");
        assertNotEquals(first.getETag(), second.getETag());
        for (TableEntityUpdateMode mode : List.of(MERGE, REPLACE)) {
            assertRefused(412, "UpdateConditionNotSatisfied", () -> table.updateEntityWithResponse(first, mode, true, null, null));
        }
        assertRefused(412, "UpdateConditionNotSatisfied", () -> table.deleteEntityWithResponse(first, true, null, null));
        table.updateEntityWithResponse(first.addProperty("a", 3), MERGE, false, null, null);
        assertEquals(3, table.getEntity("p", "r").getProperty("a"));
        assertRefused(412, "UpdateConditionNotSatisfied", () -> table.deleteEntityWithResponse(second, true, null, null));
        table.deleteEntity(second);
        assertEquals("", rows(table, null));
    }

    @ParameterizedTest
    @ValueSource(strings = {"it's", "''", "a b", "ü日本😀", "100%", "%41", "a+b", "a&b=c", "a;b,c", "(x)"})
    void keysOfAnyCharactersThatAreAllowed(String key) {
        TableClient table = newTable();
        TableEntity entity = new TableEntity(key, key).addProperty("n", 1);
        table.createEntity(entity);
        table.updateEntity(entity.addProperty("n", 2));
        table.upsertEntity(entity);
        TableEntity found = table.getEntity(key, key);
        assertEquals(List.of(key, key, 2), List.of(found.getPartitionKey(), found.getRowKey(), found.getProperty("n")));
        assertEquals(key, rows(table, "PartitionKey eq '" + key.replace("'", "''") + "'"));
        assertEquals(204, table.deleteEntityWithResponse(entity, false, null, null).getStatusCode());
    }

    @ParameterizedTest
    @ValueSource(strings = {"a/b", "a\\b", "a#b", "a?b"})
    void keysOfOtherCharacters(String key) {
        TableClient table = newTable();
        assertRefused(400, "OutOfRangeInput", () -> table.createEntity(new TableEntity("p", key)));
    }

    @Test
    void emptyKeys() {
        TableClient table = newTable();
        table.createEntity(new TableEntity("", ""));
        assertEquals(1, table.listEntities().stream().count());
    }

    @Test
    void everyTypeGoesAndComesBack() {
        TableClient table = newTable();
        Map<String, Object> values = new HashMap<>(Map.of(
            "string", "it's ünïcödé 😀 \" \\ \u2028", "empty", "", "yes", true, "no", false,
            "int", -5, "most", Integer.MAX_VALUE, "least", Integer.MIN_VALUE));
        values.putAll(Map.of(
            "double", 2.5, "two", 2.0, "tiny", Double.MIN_VALUE, "huge", Double.MAX_VALUE,
            "big", Long.MAX_VALUE, "small", Long.MIN_VALUE,
            "date", OffsetDateTime.parse("2020-02-29T12:30:45.1234567Z"),
            "guid", UUID.fromString("c9da6455-213d-42c9-9a79-3e9149a57833")));
        table.createEntity(new TableEntity("p", "r").setProperties(values).addProperty("binary", new byte[] {0, 1, -1}));
        for (TableEntity found : List.of(table.getEntity("p", "r"), table.listEntities().iterator().next())) {
            Map<String, Object> read = written(found);
            assertArrayEquals(new byte[] {0, 1, -1}, (byte[]) read.remove("binary"));
            assertEquals(values, read);
        }
    }

    @Test
    void numbersThatAreNone() {
        TableClient table = newTable();
        Map<String, Object> values = Map.of(
            "nan", Double.NaN, "inf", Double.POSITIVE_INFINITY, "neg", Double.NEGATIVE_INFINITY);
        TableEntity entity = entity("r").setProperties(values);
        values.keySet().forEach(name -> entity.addProperty(name + "@odata.type", "Edm.Double"));
        table.createEntity(entity);
        assertEquals(values, written(table.getEntity("p", "r")));
    }

    @Test
    void nullIsAbsentAndMergeKeeps() {
        TableClient table = newTable();
        table.createEntity(entity("r").addProperty("a", null).addProperty("b", 1));
        assertEquals(Map.of("b", 1), written(table.getEntity("p", "r")));
        table.updateEntity(entity("r").addProperty("b", null));
        assertEquals(Map.of("b", 1), written(table.getEntity("p", "r")));
    }

    @Test
    void limits() {
        TableClient table = newTable();
        TableEntity many = entity("r");
        IntStream.range(0, 253).forEach(n -> many.addProperty("p" + n, n));
        assertRefused(400, "TooManyProperties", () -> table.createEntity(many));
        assertRefused(400, "PropertyValueTooLarge", () -> table.createEntity(entity("r").addProperty("s", "x".repeat(32769))));
        assertRefused(400, "PropertyNameTooLong", () -> table.createEntity(entity("r").addProperty("n".repeat(256), 1)));
        assertRefused(400, "InvalidInput", () ->
            table.createEntity(entity("r").addProperty("g", "no").addProperty("g@odata.type", "Edm.Guid")));
    }

    @Test
    void oneOfManyCreationsWins() {
        TableClient table = newTable();
        List<Integer> winners = IntStream.range(0, 16).parallel().filter(n -> {
            try {
                table.createEntity(entity("r").addProperty("n", n));
                return true;
            } catch (TableServiceException error) {
                assertEquals("EntityAlreadyExists", code(error));
                return false;
            }
        }).boxed().toList();
        assertEquals(List.of(table.getEntity("p", "r").getProperty("n")), winners);
    }
}
