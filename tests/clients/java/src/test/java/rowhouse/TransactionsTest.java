package rowhouse;

import static com.azure.data.tables.models.TableTransactionActionType.CREATE;
import static com.azure.data.tables.models.TableTransactionActionType.DELETE;
import static com.azure.data.tables.models.TableTransactionActionType.UPDATE_MERGE;
import static com.azure.data.tables.models.TableTransactionActionType.UPDATE_REPLACE;
import static com.azure.data.tables.models.TableTransactionActionType.UPSERT_MERGE;
import static com.azure.data.tables.models.TableTransactionActionType.UPSERT_REPLACE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableServiceException;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import com.azure.data.tables.models.TableTransactionFailedException;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class TransactionsTest extends ServerTest {
    private static TableTransactionAction action(TableTransactionActionType type, TableEntity entity) {
        return new TableTransactionAction(type, entity);
    }

    private static TableTransactionAction action(TableTransactionActionType type, String row) {
        return action(type, entity(row));
    }

    private static TableEntity now(String row) {
        return entity(row).addProperty("now", "it's 100% <&> ü");
    }

    /** Submits what must fail, and sees which action failed, why, and that nothing changed. */
    private static void assertUndone(TableClient table, int index, String code, TableTransactionAction... actions) {
        String before = rows(table, null);
        var error = assertThrows(TableTransactionFailedException.class, () -> table.submitTransaction(List.of(actions)));
        assertEquals(index, error.getFailedTransactionActionIndex());
        assertEquals(code, error.getValue().getErrorCode().toString());
        assertEquals(before, rows(table, null));
    }

    @Test
    void everyKindOfActionAtOnce() {
        TableClient table = newTable();
        for (String row : List.of("delete", "merge", "replace", "upmerge", "upreplace")) {
            table.createEntity(entity(row).addProperty("old", 1));
        }
        var result = table.submitTransaction(List.of(
            action(CREATE, now("create")),
            action(DELETE, "delete"),
            action(UPDATE_MERGE, now("merge")),
            action(UPDATE_REPLACE, now("replace")),
            action(UPSERT_MERGE, now("upmerge")),
            action(UPSERT_REPLACE, now("upreplace")),
            action(UPSERT_REPLACE, entity("fresh").addProperty("big", 5L))));
        assertEquals(List.of(204, 204, 204, 204, 204, 204, 204),
            result.getTransactionActionResponses().stream().map(response -> response.getStatusCode()).toList());
        assertEquals(204, result.getTableTransactionActionResponseByRowKey("merge").getStatusCode());
        Map<String, Object> now = Map.of("now", "it's 100% <&> ü");
        Map<String, Object> both = Map.of("now", "it's 100% <&> ü", "old", 1);
        Map.of("create", now, "merge", both, "replace", now, "upmerge", both, "upreplace", now,
            "fresh", Map.<String, Object>of("big", 5L))
            .forEach((row, expected) -> assertEquals(expected, written(table.getEntity("p", row)), row));
        assertRefused(404, "ResourceNotFound", () -> table.getEntity("p", "delete"));
    }

    @Test
    void failuresUndoEverythingAndNameTheAction() {
        TableClient table = newTable();
        table.createEntity(entity("taken"));
        TableEntity old = table.getEntity("p", "taken");
        table.updateEntity(entity("taken").addProperty("a", 2));
        TableTransactionAction create = action(CREATE, "a");
        assertUndone(table, 1, "EntityAlreadyExists", create, action(CREATE, "taken"));
        assertUndone(table, 0, "EntityAlreadyExists", action(CREATE, "taken"), create);
        assertUndone(table, 1, "ResourceNotFound", create, action(DELETE, "missing"));
        assertUndone(table, 1, "ResourceNotFound", create, action(UPDATE_MERGE, "missing"));
        assertUndone(table, 1, "InvalidDuplicateRow", create, action(UPSERT_MERGE, "a"));
        assertUndone(table, 1, "CommandsInBatchActOnDifferentPartitions", create, action(CREATE, new TableEntity("q", "b")));
        assertUndone(table, 2, "PropertyValueTooLarge", create, action(CREATE, "b"),
            action(CREATE, entity("c").addProperty("s", "x".repeat(32769))));
        for (TableTransactionActionType type : List.of(UPDATE_MERGE, UPDATE_REPLACE, DELETE)) {
            assertUndone(table, 1, "UpdateConditionNotSatisfied", create, new TableTransactionAction(type, old, true));
        }
        table.submitTransaction(List.of(new TableTransactionAction(DELETE, table.getEntity("p", "taken"), true)));
    }

    @Test
    void aMissingTable() {
        TableClient missing = server.service().getTableClient(newName("Missing"));
        var error = assertThrows(TableServiceException.class, () -> missing.submitTransaction(List.of(action(CREATE, "a"))));
        assertEquals("TableNotFound", error.getValue().getErrorCode().toString());
    }

    @Test
    void aHundredActionsAreTheMost() {
        TableClient table = newTable();
        List<TableTransactionAction> actions = IntStream.range(0, 101)
            .mapToObj(n -> action(UPSERT_REPLACE, String.format("%03d", n))).toList();
        table.submitTransaction(actions.subList(0, 100));
        assertEquals(100, table.listEntities().stream().count());
        var error = assertThrows(TableServiceException.class, () -> table.submitTransaction(actions));
        assertEquals("InvalidInput", error.getValue().getErrorCode().toString());
        assertThrows(IllegalArgumentException.class, () -> table.submitTransaction(List.of()));
    }

    @Test
    void keysWithQuotes() {
        TableClient table = newTable();
        TableEntity entity = new TableEntity("it's", "100% ü's");
        table.submitTransaction(List.of(action(CREATE, entity)));
        table.submitTransaction(List.of(action(UPSERT_REPLACE, entity.addProperty("n", 1))));
        assertEquals(1, table.getEntity("it's", "100% ü's").getProperty("n"));
        table.submitTransaction(List.of(action(DELETE, entity)));
        assertEquals("", rows(table, null));
    }
}
