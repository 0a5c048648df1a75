package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.azure.core.credential.AzureSasCredential;
import com.azure.core.exception.HttpResponseException;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.models.TableAccessPolicy;
import com.azure.data.tables.models.TableSignedIdentifier;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import com.azure.data.tables.sas.TableAccountSasPermission;
import com.azure.data.tables.sas.TableAccountSasResourceType;
import com.azure.data.tables.sas.TableAccountSasService;
import com.azure.data.tables.sas.TableAccountSasSignatureValues;
import com.azure.data.tables.sas.TableSasIpRange;
import com.azure.data.tables.sas.TableSasPermission;
import com.azure.data.tables.sas.TableSasProtocol;
import com.azure.data.tables.sas.TableSasSignatureValues;
import java.time.OffsetDateTime;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AccessTest extends ServerTest {
    private static final String MISMATCH = "AuthorizationPermissionMismatch";

    private static OffsetDateTime ahead(int minutes) {
        return OffsetDateTime.now().plusMinutes(minutes);
    }

    private static TableSasSignatureValues values(String permissions) {
        return new TableSasSignatureValues(ahead(60), TableSasPermission.parse(permissions));
    }

    /** A client of the table that only has a signature. */
    private static TableClient holder(TableClient table, TableSasSignatureValues values) {
        return server.builder().sasToken(table.generateSas(values)).buildClient().getTableClient(table.getTableName());
    }

    private static TableServiceClient account(String permissions, String types) {
        var values = new TableAccountSasSignatureValues(ahead(60), TableAccountSasPermission.parse(permissions),
            TableAccountSasService.parse("t"), TableAccountSasResourceType.parse(types));
        String signature = server.service().generateAccountSas(values);
        return server.builder().credential(new AzureSasCredential(signature)).buildClient();
    }

    /** Which operations are not refused with a mismatch. */
    private static String allowed(TableClient table) {
        Map<String, Runnable> attempts = new LinkedHashMap<>();
        attempts.put("get", () -> table.getEntity("p", "old"));
        attempts.put("list", () -> rows(table, null));
        attempts.put("create", () -> table.createEntity(entity("new")));
        attempts.put("update", () -> table.updateEntity(entity("old")));
        attempts.put("upsert", () -> table.upsertEntity(entity("newer")));
        attempts.put("delete", () -> table.deleteEntity("p", "old"));
        StringJoiner found = new StringJoiner(" ");
        attempts.forEach((name, attempt) -> {
            try {
                attempt.run();
                found.add(name);
            } catch (HttpResponseException error) {
                assertEquals("403 " + MISMATCH, error.getResponse().getStatusCode() + " " + code(error), name);
            }
        });
        return found.toString();
    }

    @ParameterizedTest
    @CsvSource({"r, get list", "a, create", "u, update", "d, delete", "au, create update upsert",
        "raud, get list create update upsert delete"})
    void permissions(String permissions, String expected) {
        TableClient table = newTable();
        table.createEntity(entity("old"));
        assertEquals(expected, allowed(holder(table, values(permissions))));
        table.upsertEntity(entity("old"));
        table.deleteEntity("p", "new");
        assertEquals(expected, allowed(account(permissions, "o").getTableClient(table.getTableName())));
    }

    @Test
    void rangesOfKeys() {
        TableClient table = newTable();
        for (String row : List.of("1", "2", "3")) {
            table.createEntity(entity(row));
        }
        TableClient inside = holder(table, values("raud")
            .setStartPartitionKey("p").setStartRowKey("1").setEndPartitionKey("p").setEndRowKey("2"));
        assertEquals("12", rows(inside, null));
        assertRefused(403, "AuthorizationFailure", () -> inside.upsertEntity(entity("3")));
        assertRefused(404, "ResourceNotFound", () -> inside.getEntity("p", "3"));
        inside.submitTransaction(List.of(new TableTransactionAction(TableTransactionActionType.DELETE, entity("2"))));
        assertEquals("13", rows(table, null));
    }

    @Test
    void timesAddressesAndProtocols() {
        TableClient table = newTable();
        rows(holder(table, values("r").setStartTime(ahead(-5))), null);
        rows(holder(table, values("r").setSasIpRange(TableSasIpRange.parse("127.0.0.0-127.0.0.9"))), null);
        rows(holder(table, values("r").setProtocol(TableSasProtocol.HTTPS_HTTP)), null);
        assertRefused(403, "AuthenticationFailed", () -> rows(holder(table, values("r").setExpiryTime(ahead(-5))), null));
        assertRefused(403, "AuthenticationFailed", () -> rows(holder(table, values("r").setStartTime(ahead(5))), null));
        assertRefused(403, "AuthorizationSourceIPMismatch",
            () -> rows(holder(table, values("r").setSasIpRange(TableSasIpRange.parse("192.0.2.1"))), null));
        assertRefused(403, "AuthorizationProtocolMismatch",
            () -> rows(holder(table, values("r").setProtocol(TableSasProtocol.HTTPS_ONLY)), null));
    }

    @Test
    void resourceTypesOfAccountSignatures() {
        String name = newName("T");
        account("c", "c").createTable(name);
        account("l", "c").listTables().stream().count();
        assertRefused(403, "AuthorizationResourceTypeMismatch", () -> account("d", "o").deleteTable(name));
        assertRefused(403, MISMATCH, () -> account("l", "sco").deleteTable(name));
        account("d", "c").deleteTable(name);
        account("r", "s").getProperties();
    }

    @Test
    void policies() {
        TableClient table = newTable();
        table.createEntity(entity("old"));
        OffsetDateTime start = OffsetDateTime.parse("2021-03-04T05:06:07Z");
        OffsetDateTime expiry = OffsetDateTime.parse("2041-03-04T05:06:07Z");
        table.setAccessPolicies(List.of(
            policy("read", "r").setAccessPolicy(new TableAccessPolicy().setStartsOn(start).setExpiresOn(expiry).setPermissions("r")),
            policy("it's <&> ü", "raud")));
        List<TableSignedIdentifier> found = table.getAccessPolicies().getIdentifiers();
        assertEquals(List.of("read", "it's <&> ü"), found.stream().map(TableSignedIdentifier::getId).toList());
        assertEquals(start, found.get(0).getAccessPolicy().getStartsOn());
        assertEquals(expiry, found.get(0).getAccessPolicy().getExpiresOn());
        assertEquals("raud", found.get(1).getAccessPolicy().getPermissions());
        TableClient reader = holder(table, new TableSasSignatureValues("read"));
        assertEquals("get list", allowed(reader));
        assertRefused(403, "AuthenticationFailed", () -> rows(holder(table, new TableSasSignatureValues("none")), null));
        List<TableSignedIdentifier> six = IntStream.range(0, 6).mapToObj(n -> policy("" + n, "r")).toList();
        assertRefused(400, "InvalidXmlDocument", () -> table.setAccessPolicies(six));
        assertRefused(400, "InvalidXmlNodeValue", () -> table.setAccessPolicies(List.of(policy("x", "dr"))));
        table.setAccessPolicies(List.of());
        // So the SDK reads an empty list.
        assertNull(table.getAccessPolicies().getIdentifiers());
        assertRefused(403, "AuthenticationFailed", () -> rows(reader, null));
    }

    private static TableSignedIdentifier policy(String id, String permissions) {
        return new TableSignedIdentifier(id)
            .setAccessPolicy(new TableAccessPolicy().setExpiresOn(ahead(60)).setPermissions(permissions));
    }
}
