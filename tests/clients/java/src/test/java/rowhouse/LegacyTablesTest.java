package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.microsoft.azure.storage.CloudStorageAccount;
import com.microsoft.azure.storage.StorageCredentialsAccountAndKey;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.CloudTableClient;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LegacyTablesTest extends LegacyTest {
    private static List<String> names(CloudTableClient service, String prefix) {
        List<String> found = new ArrayList<>();
        service.listTables(prefix).forEach(found::add);
        return found;
    }

    @Test
    void aTableIsCreatedListedAndDeleted() throws Exception {
        CloudTableClient service = service();
        String name = newName("Old");
        CloudTable table = service.getTableReference(name);
        assertFalse(table.exists());
        table.create();
        assertTrue(table.exists());
        assertFails(409, "TableAlreadyExists", table::create);
        assertFalse(service.getTableReference(name.toUpperCase()).createIfNotExists());
        assertEquals(List.of(name), names(service, name));
        table.delete();
        assertFails(404, "ResourceNotFound", table::delete);
        assertFalse(table.deleteIfExists());
        assertTrue(table.createIfNotExists());
        assertTrue(table.deleteIfExists());
        assertEquals(List.of(), names(service, name));
    }

    @Test
    void tablesComeInPages() throws Exception {
        CloudTableClient service = service();
        String prefix = newName("Paged");
        List<String> all = IntStream.range(0, 7).mapToObj(n -> prefix + "x" + n).toList();
        for (String name : all) {
            service.getTableReference(name).create();
        }
        assertEquals(all, names(service, prefix));
        var first = service.listTablesSegmented(prefix, 3, null, null, null);
        var second = service.listTablesSegmented(prefix, 3, first.getContinuationToken(), null, null);
        var third = service.listTablesSegmented(prefix, 3, second.getContinuationToken(), null, null);
        assertEquals(List.of(all.subList(0, 3), all.subList(3, 6), all.subList(6, 7)),
            List.of(first.getResults(), second.getResults(), third.getResults()));
        assertNull(third.getContinuationToken());
        for (String name : all) {
            service.getTableReference(name).delete();
        }
    }

    @ParameterizedTest
    @CsvSource({"my_table, InvalidResourceName", "ab, OutOfRangeInput"})
    void badNamesAreRefused(String name, String code) throws Exception {
        assertFails(400, code, service().getTableReference(name)::create);
    }

    @Test
    void aMissingTableIsReported() throws Exception {
        CloudTable missing = service().getTableReference(newName("Missing"));
        assertFails(404, "TableNotFound", () -> insert(missing, row("r")));
        assertFails(404, "TableNotFound", () -> missing.executeSegmented(query(), null));
        assertFails(404, "TableNotFound", missing::downloadPermissions);
        // The SDK hides the 404.
        assertNull(read(missing, "r"));
    }

    @Test
    void bothKeysOpenTheDoorAndOthersDoNot() throws Exception {
        for (String key : server.keys) {
            client(new StorageCredentialsAccountAndKey(server.account, key)).listTablesSegmented();
        }
        CloudTableClient wrong = client(new StorageCredentialsAccountAndKey(server.account, Server.newKey()));
        assertFails(403, "AuthenticationFailed", wrong::listTablesSegmented);
    }

    @Test
    void connectionStrings() throws Exception {
        CloudStorageAccount account = CloudStorageAccount.parse(String.format(
            "DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;TableEndpoint=%s;",
            server.account, server.keys.get(0), server.endpoint()));
        CloudTable table = account.createCloudTableClient().getTableReference(newName("T"));
        table.create();
        insert(table, row("r"));
        assertEquals("r", rows(table));
        table.delete();
    }
}
