package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.DynamicTableEntity;
import com.microsoft.azure.storage.table.TableBatchOperation;
import com.microsoft.azure.storage.table.TableOperation;
import com.microsoft.azure.storage.table.TablePayloadFormat;
import com.microsoft.azure.storage.table.TableRequestOptions;
import com.microsoft.azure.storage.table.TableResult;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class LegacyBatchesTest extends LegacyTest {
    private static final Map<String, Object> OLD = Map.of("old", 1);
    private static final Map<String, Object> NOW = Map.of("now", "it's 100% <&> ü");
    private static final Map<String, Object> BOTH = Map.of("old", 1, "now", "it's 100% <&> ü");

    private static TableBatchOperation batch(TableOperation... operations) {
        TableBatchOperation batch = new TableBatchOperation();
        batch.addAll(List.of(operations));
        return batch;
    }

    private static List<Integer> statuses(List<TableResult> results) {
        return results.stream().map(TableResult::getHttpStatusCode).toList();
    }

    /** Executes what must fail, and sees which operation failed, why, and that nothing changed. */
    private static void assertUndone(CloudTable table, int status, String code, int index, TableOperation... operations) {
        String before = rows(table);
        var error = assertFails(status, code, () -> table.execute(batch(operations)));
        String message = error.getExtendedErrorInformation().getErrorMessage();
        assertTrue(message.startsWith(index + ":"), message);
        assertEquals(before, rows(table));
    }

    @Test
    void merges() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("1", OLD));
        insert(table, row("2", OLD));
        TableBatchOperation merges = new TableBatchOperation();
        merges.merge(row("1", NOW));
        merges.merge(row("2", NOW));
        ArrayList<TableResult> results = table.execute(merges);
        assertEquals(List.of(204, 204), statuses(results));
        for (String row : List.of("1", "2")) {
            DynamicTableEntity found = read(table, row);
            assertEquals(BOTH, written(found));
            assertEquals(found.getEtag(), results.remove(0).getEtag());
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyKindOfOperationAtOnce(TablePayloadFormat format) throws Exception {
        CloudTable table = newLegacyTable();
        for (String row : List.of("delete", "merge", "replace", "upmerge", "upreplace")) {
            insert(table, row(row, OLD));
        }
        TableBatchOperation batch = new TableBatchOperation();
        batch.insert(row("insert", NOW));
        batch.insert(row("echoed", NOW), true);
        batch.delete(row("delete"));
        batch.merge(row("merge", NOW));
        batch.replace(row("replace", NOW));
        batch.insertOrMerge(row("upmerge", NOW));
        batch.insertOrReplace(row("upreplace", NOW));
        batch.insertOrMerge(row("fresh", NOW));
        batch.insertOrReplace(row("fresher", NOW));
        TableRequestOptions options = new TableRequestOptions();
        options.setTablePayloadFormat(format);
        List<TableResult> results = table.execute(batch, options, null);
        assertEquals(List.of(204, 201, 204, 204, 204, 204, 204, 204, 204), statuses(results));
        DynamicTableEntity echoed = results.get(1).getResultAsType();
        assertEquals(NOW, written(echoed));
        for (String row : List.of("insert", "echoed", "replace", "upreplace", "fresh", "fresher")) {
            assertEquals(NOW, written(read(table, row)), row);
        }
        for (String row : List.of("merge", "upmerge")) {
            assertEquals(BOTH, written(read(table, row)), row);
        }
        assertNull(read(table, "delete"));
    }

    @Test
    void failuresUndoEverythingAndNameTheOperation() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("taken"));
        DynamicTableEntity stale = read(table, "taken");
        table.execute(TableOperation.merge(row("taken", NOW)));
        TableOperation insert = TableOperation.insert(row("new"));
        assertUndone(table, 409, "EntityAlreadyExists", 1, insert, TableOperation.insert(row("taken")));
        assertUndone(table, 409, "EntityAlreadyExists", 0, TableOperation.insert(row("taken")), insert);
        assertUndone(table, 404, "ResourceNotFound", 1, insert, TableOperation.merge(row("missing")));
        assertUndone(table, 404, "ResourceNotFound", 1, insert, TableOperation.delete(row("missing")));
        assertUndone(table, 400, "InvalidDuplicateRow", 1, insert, TableOperation.insertOrMerge(row("new")));
        for (TableOperation late : List.of(TableOperation.merge(stale), TableOperation.replace(stale), TableOperation.delete(stale))) {
            assertUndone(table, 412, "UpdateConditionNotSatisfied", 1, insert, late);
        }
        table.execute(batch(insert, TableOperation.merge(read(table, "taken"))));
        assertEquals("newtaken", rows(table));
    }

    @Test
    void oneRetrieve() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("r", OLD));
        DynamicTableEntity found = table.execute(batch(TableOperation.retrieve("p", "r", DynamicTableEntity.class)))
            .get(0).getResultAsType();
        assertEquals(OLD, written(found));
        assertEquals(read(table, "r").getEtag(), found.getEtag());
        TableBatchOperation missing = batch(TableOperation.retrieve("p", "missing", DynamicTableEntity.class));
        assertEquals(List.of(404), statuses(table.execute(missing)));
    }

    @Test
    void aHundredOperationsAreTheMost() throws Exception {
        CloudTable table = newLegacyTable();
        TableBatchOperation batch = new TableBatchOperation();
        for (int n = 0; n < 100; n++) {
            batch.insertOrReplace(row(String.format("%03d", n)));
        }
        assertEquals(100, table.execute(batch).size());
        batch.insertOrReplace(row("100"));
        assertFails(400, "InvalidInput", () -> table.execute(batch));
        assertNull(read(table, "100"));
    }

    @Test
    void aBodyAboveFourMebibytesIsRefused() throws Exception {
        CloudTable table = newLegacyTable();
        TableBatchOperation batch = new TableBatchOperation();
        for (int n = 0; n < 100; n++) {
            batch.insert(row("" + n, Map.of("a", "x".repeat(32_000), "b", "y".repeat(32_000))));
        }
        assertFails(413, "RequestBodyTooLarge", () -> table.execute(batch));
        assertEquals("", rows(table));
    }

    @Test
    void keysWithQuotes() throws Exception {
        CloudTable table = newLegacyTable();
        String row = "100% it's ü";
        table.execute(batch(TableOperation.insert(row(row, OLD))));
        table.execute(batch(TableOperation.merge(row(row, NOW))));
        assertEquals(BOTH, written(read(table, row)));
        table.execute(batch(TableOperation.delete(row(row))));
        assertEquals("", rows(table));
    }
}
