package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.core.http.rest.PagedResponse;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableClientBuilder;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.ListTablesOptions;
import com.azure.data.tables.models.TableItem;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TablesTest extends ServerTest {
    private static List<String> names(TableServiceClient service, String filter) {
        return service.listTables(new ListTablesOptions().setFilter(filter), null, null).stream().map(TableItem::getName).toList();
    }

    @Test
    void aTableIsCreatedListedAndDeleted() {
        TableServiceClient service = server.service();
        String name = newName("T");
        assertEquals(name, service.createTable(name).getTableName());
        assertTrue(service.listTables().stream().anyMatch(table -> table.getName().equals(name)));
        service.deleteTable(name);
        assertFalse(service.listTables().stream().anyMatch(table -> table.getName().equals(name)));
    }

    @Test
    void aTableExistsOnceInAnyCasing() {
        TableServiceClient service = server.service();
        String name = newName("MixedCase");
        service.createTable(name);
        assertRefused(409, "TableAlreadyExists", () -> service.createTable(name.toLowerCase()));
        TableClient table = service.createTableIfNotExists(name.toUpperCase());
        assertRefused(409, "TableAlreadyExists", table::createTable);
        table.createEntity(entity("r"));
        assertEquals("r", service.getTableClient(name).getEntity("p", "r").getRowKey());
        assertEquals(List.of(name), names(service, "TableName eq '" + name + "'"));
        table.deleteTable();
        // The SDK hides the 404.
        assertEquals(404, table.deleteTableWithResponse(null, null).getStatusCode());
        assertEquals(404, service.deleteTableWithResponse(name, null, null).getStatusCode());
    }

    @Test
    void tablesAreFilteredAndComeInPages() {
        TableServiceClient service = server.service();
        String prefix = newName("Paged");
        List<String> all = IntStream.range(0, 7).mapToObj(n -> prefix + "x" + n).toList();
        all.forEach(service::createTable);
        String filter = String.format("TableName ge '%sx' and TableName lt '%sy'", prefix, prefix);
        assertEquals(all, names(service, filter));
        var options = new ListTablesOptions().setFilter(filter).setTop(3);
        List<PagedResponse<TableItem>> pages = service.listTables(options, null, null).streamByPage().toList();
        assertEquals(List.of(3, 3, 1), pages.stream().map(page -> page.getValue().size()).toList());
        String token = pages.get(0).getContinuationToken();
        List<String> rest = service.listTables(options, null, null).streamByPage(token)
            .flatMap(page -> page.getValue().stream()).map(TableItem::getName).toList();
        assertEquals(all.subList(3, 7), rest);
        assertNull(pages.get(2).getContinuationToken());
        all.forEach(service::deleteTable);
    }

    @ParameterizedTest
    @CsvSource({"my_table, InvalidResourceName", "ab, OutOfRangeInput", "tables, InvalidInput"})
    void badNamesAreRefused(String name, String code) {
        assertRefused(400, code, () -> server.service().createTable(name));
    }

    @Test
    void aMissingTableIsReported() {
        TableClient missing = server.service().getTableClient(newName("Missing"));
        assertRefused(404, "TableNotFound", () -> missing.createEntity(entity("r")));
        assertRefused(404, "TableNotFound", () -> missing.upsertEntity(entity("r")));
        assertRefused(404, "TableNotFound", () -> missing.updateEntity(entity("r")));
        assertRefused(404, "TableNotFound", () -> missing.getEntity("p", "r"));
        assertRefused(404, "TableNotFound", () -> missing.listEntities().stream().count());
        assertRefused(404, "TableNotFound", missing::getAccessPolicies);
        // The SDK hides the 404.
        missing.deleteEntity("p", "r");
    }

    @Test
    void bothKeysOpenTheDoorAndOthersDoNot() {
        for (String key : server.keys) {
            server.builder().credential(new AzureNamedKeyCredential(server.account, key)).buildClient().listTables().stream().count();
        }
        AzureNamedKeyCredential wrong = new AzureNamedKeyCredential(server.account, Server.newKey());
        TableServiceClient service = server.builder().credential(wrong).buildClient();
        assertRefused(403, "AuthenticationFailed", () -> service.listTables().stream().count());
        wrong.update(server.account, server.keys.get(0));
        service.listTables().stream().count();
    }

    @Test
    void connectionStrings() {
        String text = String.format("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;TableEndpoint=%s;",
            server.account, server.keys.get(0), server.endpoint());
        String name = newName("T");
        TableServiceClient service = new TableServiceClientBuilder().connectionString(text).buildClient();
        service.createTable(name);
        TableClient table = new TableClientBuilder().connectionString(text).tableName(name).buildClient();
        table.createEntity(entity("r"));
        assertEquals("r", rows(table, null));
        table.deleteTable();
    }
}
