import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.TableEntity;
import org.testcontainers.azure.AzuriteContainer;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;

/** Starts an image in the way that the first argument names, and writes and reads by the SDK. */
class Containers {
    private static final String KEY =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    private Containers() {
    }

    public static void main(String[] arguments) {
        switch (arguments[0]) {
            case "azurite" -> azurite(arguments[1]);
            case "generic" -> generic();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        // The SDK's threads would keep the process.
        System.exit(0);
    }

    private static void azurite(String substituted) {
        var image = DockerImageName.parse("rowhouse-azurite")
            .asCompatibleSubstituteFor(substituted);
        try (var storage = new AzuriteContainer(image)) {
            storage.start();
            use(storage.getConnectionString());
        }
    }

    private static void generic() {
        try (var container = new GenericContainer<>(DockerImageName.parse("rowhouse"))) {
            container.withExposedPorts(10002)
                .withEnv("DATABASE_URL", "sqlite::memory:")
                .withEnv("ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT", "true")
                .waitingFor(Wait.forLogMessage(".*Rowhouse is ready at.*\\n", 1))
                .start();
            use("DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + KEY
                + ";TableEndpoint=http://" + container.getHost() + ":" + container.getMappedPort(10002)
                + "/devstoreaccount1;");
        }
    }

    private static void use(String connectionString) {
        TableClient people = new TableServiceClientBuilder().connectionString(connectionString).buildClient()
            .createTable("People");
        people.createEntity(new TableEntity("p", "r").addProperty("Age", 33));
        var age = people.getEntity("p", "r").getProperty("Age");
        if (!Integer.valueOf(33).equals(age)) {
            throw new AssertionError(age);
        }
    }
}
