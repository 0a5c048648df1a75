package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.microsoft.azure.storage.CloudStorageAccount;
import com.microsoft.azure.storage.IPRange;
import com.microsoft.azure.storage.SharedAccessAccountPolicy;
import com.microsoft.azure.storage.SharedAccessProtocols;
import com.microsoft.azure.storage.StorageCredentialsAccountAndKey;
import com.microsoft.azure.storage.StorageCredentialsSharedAccessSignature;
import com.microsoft.azure.storage.StorageException;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.CloudTableClient;
import com.microsoft.azure.storage.table.SharedAccessTablePermissions;
import com.microsoft.azure.storage.table.SharedAccessTablePolicy;
import com.microsoft.azure.storage.table.TableBatchOperation;
import com.microsoft.azure.storage.table.TableOperation;
import com.microsoft.azure.storage.table.TablePermissions;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LegacyAccessTest extends LegacyTest {
    private static final String MISMATCH = "AuthorizationPermissionMismatch";

    private static Date ahead(int minutes) {
        return Date.from(Instant.now().plus(Duration.ofMinutes(minutes)));
    }

    private static SharedAccessTablePolicy policy(String permissions) {
        SharedAccessTablePolicy policy = new SharedAccessTablePolicy();
        policy.setPermissionsFromString(permissions);
        policy.setSharedAccessExpiryTime(ahead(60));
        return policy;
    }

    /** The same table, with nothing but a signature. */
    private static CloudTable holder(CloudTable table, String signature) throws Exception {
        return client(new StorageCredentialsSharedAccessSignature(signature)).getTableReference(table.getName());
    }

    private static CloudTable holder(CloudTable table, SharedAccessTablePolicy policy) throws Exception {
        return holder(table, table.generateSharedAccessSignature(policy, null, null, null, null, null));
    }

    /** The same table, with a signature by a stored policy. */
    private static CloudTable holderBy(CloudTable table, String identifier) throws Exception {
        return holder(table, table.generateSharedAccessSignature(null, identifier, null, null, null, null));
    }

    private static CloudTable restricted(CloudTable table, IPRange range, SharedAccessProtocols protocols) throws Exception {
        return holder(table, table.generateSharedAccessSignature(policy("r"), null, null, null, null, null, range, protocols));
    }

    private static CloudTableClient account(String permissions, String types) throws Exception {
        SharedAccessAccountPolicy policy = new SharedAccessAccountPolicy();
        policy.setPermissionsFromString(permissions);
        policy.setServiceFromString("t");
        policy.setResourceTypeFromString(types);
        policy.setSharedAccessExpiryTime(ahead(60));
        var key = new StorageCredentialsAccountAndKey(server.account, server.keys.get(0));
        URI endpoint = URI.create(server.endpoint());
        // The others are never used, but the SDK insists on them.
        var account = new CloudStorageAccount(key, endpoint, endpoint, endpoint);
        return client(new StorageCredentialsSharedAccessSignature(account.generateSharedAccessSignature(policy)));
    }

    private static void list(CloudTable table) throws StorageException {
        table.executeSegmented(query(), null);
    }

    /** Which operations are not refused with a mismatch. */
    private static String allowed(CloudTable table) throws Throwable {
        Map<String, Executable> attempts = new LinkedHashMap<>();
        attempts.put("get", () -> read(table, "old"));
        attempts.put("list", () -> list(table));
        attempts.put("insert", () -> insert(table, row("new")));
        attempts.put("merge", () -> table.execute(TableOperation.merge(row("old"))));
        attempts.put("upsert", () -> table.execute(TableOperation.insertOrReplace(row("newer"))));
        attempts.put("delete", () -> table.execute(TableOperation.delete(row("old"))));
        StringJoiner found = new StringJoiner(" ");
        for (var attempt : attempts.entrySet()) {
            try {
                attempt.getValue().execute();
                found.add(attempt.getKey());
            } catch (StorageException error) {
                // The SDK looks for the code of a failed retrieve in a header alone, where the service does not send it.
                String code = attempt.getKey().equals("get") ? null : MISMATCH;
                assertEquals("403 " + code, error.getHttpStatusCode() + " " + error.getErrorCode(), attempt.getKey());
            }
        }
        return found.toString();
    }

    @ParameterizedTest
    @CsvSource({"r, get list", "a, insert", "u, merge", "d, delete", "au, insert merge upsert",
        "raud, get list insert merge upsert delete"})
    void permissions(String permissions, String expected) throws Throwable {
        CloudTable table = newLegacyTable();
        insert(table, row("old"));
        assertEquals(expected, allowed(holder(table, policy(permissions))));
        table.execute(TableOperation.insertOrMerge(row("old")));
        table.execute(TableOperation.insertOrMerge(row("new")));
        table.execute(TableOperation.delete(row("new")));
        assertEquals(expected, allowed(account(permissions, "o").getTableReference(table.getName())));
    }

    @Test
    void policies() throws Throwable {
        CloudTable table = newLegacyTable();
        insert(table, row("old"));
        Date start = Date.from(Instant.parse("2021-03-04T05:06:07Z"));
        SharedAccessTablePolicy reader = policy("r");
        reader.setSharedAccessStartTime(start);
        reader.setSharedAccessExpiryTime(Date.from(Instant.parse("2041-03-04T05:06:07Z")));
        TablePermissions sent = new TablePermissions();
        sent.getSharedAccessPolicies().putAll(Map.of("read", reader, "it's <> ü", policy("raud")));
        table.uploadPermissions(sent);
        HashMap<String, SharedAccessTablePolicy> found = table.downloadPermissions().getSharedAccessPolicies();
        assertEquals(sent.getSharedAccessPolicies().keySet(), found.keySet());
        assertEquals(List.of(start, reader.getSharedAccessExpiryTime()),
            List.of(found.get("read").getSharedAccessStartTime(), found.get("read").getSharedAccessExpiryTime()));
        assertEquals(EnumSet.of(SharedAccessTablePermissions.QUERY), found.get("read").getPermissions());
        assertEquals("raud", found.get("it's <> ü").permissionsToString());
        assertEquals("get list", allowed(holderBy(table, "read")));
        assertEquals("get list insert merge upsert delete", allowed(holderBy(table, "it's <> ü")));
        assertFails(403, "AuthenticationFailed", () -> list(holderBy(table, "none")));
        CloudTable holder = holderBy(table, "read");
        table.uploadPermissions(new TablePermissions());
        assertEquals(Map.of(), table.downloadPermissions().getSharedAccessPolicies());
        assertFails(403, "AuthenticationFailed", () -> list(holder));
    }

    @Test
    void rangesOfKeys() throws Exception {
        CloudTable table = newLegacyTable();
        for (String row : List.of("1", "2", "3")) {
            insert(table, row(row));
        }
        CloudTable inside = holder(table, table.generateSharedAccessSignature(policy("raud"), null, "p", "1", "p", "2"));
        assertEquals("12", rows(inside));
        assertFails(403, "AuthorizationFailure", () -> insert(inside, row("4")));
        TableBatchOperation batch = new TableBatchOperation();
        batch.merge(row("1", Map.of("n", 1)));
        batch.delete(row("2"));
        inside.execute(batch);
        assertEquals("13", rows(table));
    }

    @Test
    void timesAddressesAndProtocols() throws Exception {
        CloudTable table = newLegacyTable();
        list(restricted(table, new IPRange("127.0.0.0", "127.0.0.9"), null));
        list(restricted(table, null, SharedAccessProtocols.HTTPS_HTTP));
        assertFails(403, "AuthorizationSourceIPMismatch", () -> list(restricted(table, new IPRange("192.0.2.1"), null)));
        SharedAccessTablePolicy expired = policy("r");
        expired.setSharedAccessExpiryTime(ahead(-5));
        assertFails(403, "AuthenticationFailed", () -> list(holder(table, expired)));
        SharedAccessTablePolicy early = policy("r");
        early.setSharedAccessStartTime(ahead(5));
        assertFails(403, "AuthenticationFailed", () -> list(holder(table, early)));
    }

    @Test
    void resourceTypesOfAccountSignatures() throws Exception {
        String name = newName("T");
        account("c", "c").getTableReference(name).create();
        account("l", "c").listTablesSegmented();
        assertFails(403, "AuthorizationResourceTypeMismatch", account("d", "o").getTableReference(name)::delete);
        assertFails(403, MISMATCH, account("l", "sco").getTableReference(name)::delete);
        account("d", "c").getTableReference(name).delete();
        account("r", "s").downloadServiceProperties();
    }
}
