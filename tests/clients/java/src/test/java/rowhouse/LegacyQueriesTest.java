package rowhouse;

import static com.microsoft.azure.storage.table.TableQuery.QueryComparisons.EQUAL;
import static com.microsoft.azure.storage.table.TableQuery.QueryComparisons.GREATER_THAN;
import static com.microsoft.azure.storage.table.TableQuery.QueryComparisons.GREATER_THAN_OR_EQUAL;
import static com.microsoft.azure.storage.table.TableQuery.QueryComparisons.LESS_THAN;
import static com.microsoft.azure.storage.table.TableQuery.QueryComparisons.NOT_EQUAL;
import static com.microsoft.azure.storage.table.TableQuery.combineFilters;
import static com.microsoft.azure.storage.table.TableQuery.generateFilterCondition;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.microsoft.azure.storage.ResultContinuation;
import com.microsoft.azure.storage.ResultSegment;
import com.microsoft.azure.storage.StorageException;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.DynamicTableEntity;
import com.microsoft.azure.storage.table.TableBatchOperation;
import com.microsoft.azure.storage.table.TableQuery;
import com.microsoft.azure.storage.table.TableQuery.Operators;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class LegacyQueriesTest extends LegacyTest {
    private static List<String> rows(ResultSegment<DynamicTableEntity> page) {
        return page.getResults().stream().map(DynamicTableEntity::getRowKey).toList();
    }

    /** The rows of each page, from that of the token on. */
    private static List<List<String>> pages(CloudTable table, TableQuery<DynamicTableEntity> query, ResultContinuation token)
        throws StorageException {
        List<List<String>> found = new ArrayList<>();
        do {
            var page = table.executeSegmented(query, token);
            found.add(rows(page));
            token = page.getContinuationToken();
        } while (token != null);
        return found;
    }

    @Test
    void filtersOfEveryType() throws Exception {
        CloudTable table = newLegacyTable();
        Instant early = Instant.parse("2020-01-01T00:00:00Z");
        String guid = "c9da6455-213d-42c9-9a79-3e9149a5783";
        for (int n = 0; n < 5; n++) {
            insert(table, row("" + n, Map.of(
                "n", n, "big", n * 1_000_000_000_000L, "d", n + 0.5, "s", "it's " + n, "even", n % 2 == 0,
                "t", Date.from(early.plusSeconds(n)), "g", UUID.fromString(guid + n), "x", new byte[] {(byte) n})));
        }
        String keys = combineFilters(generateFilterCondition("PartitionKey", EQUAL, "p"), Operators.AND,
            generateFilterCondition("RowKey", GREATER_THAN_OR_EQUAL, "3"));
        String either = combineFilters(generateFilterCondition("n", LESS_THAN, 1), Operators.OR,
            generateFilterCondition("n", EQUAL, 4));
        Map<String, String> expected = Map.ofEntries(
            Map.entry(keys, "34"),
            Map.entry(either, "04"),
            Map.entry("not (n gt 1)", "01"),
            Map.entry(generateFilterCondition("big", GREATER_THAN_OR_EQUAL, 3_000_000_000_000L), "34"),
            Map.entry(generateFilterCondition("d", LESS_THAN, 1.75), "01"),
            Map.entry(generateFilterCondition("s", EQUAL, "it's 3"), "3"),
            Map.entry(generateFilterCondition("even", NOT_EQUAL, true), "13"),
            Map.entry(generateFilterCondition("t", GREATER_THAN, Date.from(early.plusSeconds(2))), "34"),
            Map.entry(generateFilterCondition("g", EQUAL, UUID.fromString(guid + "2")), "2"),
            Map.entry(generateFilterCondition("x", GREATER_THAN_OR_EQUAL, new byte[] {3}), "34"),
            Map.entry(generateFilterCondition("n", EQUAL, 99), ""));
        expected.forEach((filter, found) -> assertEquals(found, rows(table, filter), filter));
        assertFails(400, "InvalidInput", () -> table.executeSegmented(query().where("n eq"), null));
    }

    @Test
    void select() throws Exception {
        CloudTable table = newLegacyTable();
        insert(table, row("r", Map.of("a", "x", "b", 1, "c", true)));
        DynamicTableEntity found = table.execute(query().select(new String[] {"b", "c"})).iterator().next();
        assertEquals(Map.of("b", 1, "c", true), written(found));
        assertEquals(1, (int) table.execute(query().select(new String[] {"b"}),
            (partition, row, timestamp, properties, etag) -> properties.get("b").getValueAsInteger()).iterator().next());
    }

    @Test
    void rangesOfKeys() throws Exception {
        CloudTable table = newLegacyTable();
        for (String partition : List.of("o", "p", "q")) {
            for (String row : List.of("1", "2", "3")) {
                insert(table, new DynamicTableEntity(partition, row));
            }
        }
        assertEquals("123123", rows(table, "PartitionKey gt 'o' and PartitionKey le 'q'"));
        assertEquals("23", rows(table, "PartitionKey eq 'p' and RowKey gt '1' and RowKey lt '4'"));
        assertEquals("333", rows(table, "RowKey eq '3'"));
        assertEquals("", rows(table, "PartitionKey gt 'q'"));
    }

    @Test
    void pagesAndTheirTokens() throws Exception {
        CloudTable table = newLegacyTable();
        List<String> all = IntStream.range(0, 1100).mapToObj(n -> String.format("%04d", n)).toList();
        for (int start = 0; start < 1100; start += 100) {
            TableBatchOperation batch = new TableBatchOperation();
            all.subList(start, start + 100).forEach(row -> batch.insert(row(row)));
            table.execute(batch);
        }
        assertEquals(List.of(all.subList(0, 1000), all.subList(1000, 1100)), pages(table, query(), null));
        assertEquals(String.join("", all), rows(table));
        var taken = query().take(400);
        assertEquals(List.of(all.subList(0, 400), all.subList(400, 800), all.subList(800, 1100)), pages(table, taken, null));
        var ranged = query().where("RowKey ge '0100' and RowKey lt '0110'").take(4);
        var first = table.executeSegmented(ranged, null);
        assertEquals(all.subList(100, 104), rows(first));
        // A program may keep the token as text.
        ResultContinuation kept = new ResultContinuation();
        kept.setContinuationType(first.getContinuationToken().getContinuationType());
        kept.setNextPartitionKey(first.getContinuationToken().getNextPartitionKey());
        kept.setNextRowKey(first.getContinuationToken().getNextRowKey());
        assertEquals(List.of(all.subList(104, 108), all.subList(108, 110)), pages(table, ranged, kept));
        assertNull(table.executeSegmented(query().where("RowKey lt '0'"), null).getContinuationToken());
    }
}
