package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.azure.core.http.rest.PagedResponse;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class QueriesTest extends ServerTest {
    private static List<PagedResponse<TableEntity>> pages(TableClient table, ListEntitiesOptions options) {
        return table.listEntities(options, null, null).streamByPage().toList();
    }

    private static List<String> rows(Stream<PagedResponse<TableEntity>> pages) {
        return pages.flatMap(page -> page.getValue().stream()).map(TableEntity::getRowKey).toList();
    }

    @Test
    void filtersOfEveryType() {
        TableClient table = newTable();
        OffsetDateTime early = OffsetDateTime.parse("2020-01-01T00:00:00Z");
        String guid = "c9da6455-213d-42c9-9a79-3e9149a5783";
        for (int n = 0; n < 5; n++) {
            TableEntity entity = entity("" + n).setProperties(Map.of(
                "n", n, "big", n * 1_000_000_000_000L, "d", n + 0.5, "s", "it's " + n, "even", n % 2 == 0,
                "t", early.plusSeconds(n), "g", UUID.fromString(guid + n), "x", new byte[] {(byte) n}));
            table.createEntity(n < 4 ? entity : entity.addProperty("only", "here"));
        }
        Map<String, String> expected = Map.ofEntries(
            Map.entry("PartitionKey eq 'p' and RowKey ge '3'", "34"),
            Map.entry("n gt 0 and n le 2 or n eq 4", "124"),
            Map.entry("not (n gt 1)", "01"),
            Map.entry("big ge 3000000000000L", "34"),
            Map.entry("d lt 1.75", "01"),
            Map.entry("s eq 'it''s 3'", "3"),
            Map.entry("even eq true", "024"),
            Map.entry("t gt datetime'2020-01-01T00:00:02Z'", "34"),
            Map.entry("g eq guid'" + guid + "2'", "2"),
            Map.entry("x ge X'03'", "34"),
            Map.entry("only ne 'there'", "4"),
            Map.entry("n eq 99", ""));
        expected.forEach((filter, found) -> assertEquals(found, rows(table, filter), filter));
        assertRefused(400, "InvalidInput", () -> rows(table, "n eq"));
    }

    @Test
    void selectAndTop() {
        TableClient table = newTable();
        for (String row : List.of("1", "2", "3")) {
            table.createEntity(entity(row).addProperty("a", row).addProperty("b", 1));
        }
        var options = new ListEntitiesOptions().setSelect(List.of("a", "missing")).setTop(2);
        List<PagedResponse<TableEntity>> pages = pages(table, options);
        assertEquals(List.of(2, 1), pages.stream().map(page -> page.getValue().size()).toList());
        TableEntity found = pages.get(0).getValue().get(1);
        assertEquals("2", found.getProperty("a"));
        assertNull(found.getProperty("missing"));
        assertNull(found.getProperty("b"));
    }

    @Test
    void pagesAndTheirTokens() {
        TableClient table = newTable();
        List<String> all = IntStream.range(0, 1100).mapToObj(n -> String.format("%04d", n)).toList();
        for (int start = 0; start < 1100; start += 100) {
            table.submitTransaction(all.subList(start, start + 100).stream()
                .map(row -> new TableTransactionAction(TableTransactionActionType.CREATE, entity(row))).toList());
        }
        Map<Integer, List<Integer>> sizes = Map.of(1000, List.of(1000, 100), 400, List.of(400, 400, 300));
        sizes.forEach((top, expected) -> {
            List<PagedResponse<TableEntity>> found = pages(table, new ListEntitiesOptions().setTop(top));
            assertEquals(expected, found.stream().map(page -> page.getValue().size()).toList());
            assertEquals(all, rows(found.stream()));
        });
        assertEquals(all, rows(pages(table, new ListEntitiesOptions()).stream()));
        var ranged = new ListEntitiesOptions().setFilter("RowKey ge '0100' and RowKey lt '0110'").setTop(4);
        String token = pages(table, ranged).get(0).getContinuationToken();
        assertEquals(all.subList(104, 110), rows(table.listEntities(ranged, null, null).streamByPage(token)));
        assertNull(pages(table, ranged).get(2).getContinuationToken());
        assertEquals(List.of(), rows(pages(table, new ListEntitiesOptions().setFilter("RowKey lt '0'")).stream()));
    }
}
