package rowhouse;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.RetryOptions;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Base64;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** One server process on a free port, with an account that nobody used before. */
final class Server {
    private static final Pattern READY = Pattern.compile("Rowhouse is ready at (http://[^ ,]+),? .*");
    private static final int START_SECONDS = 60;
    private static final int STOP_SECONDS = 40;
    private static final int COMMAND_SECONDS = 60;
    private static final SecureRandom RANDOM = new SecureRandom();

    final String account;
    final List<String> keys;
    final String origin;
    private final Path folder;
    private final ProcessBuilder builder;
    private final Process process;

    Server() throws Exception {
        this("java" + HexFormat.of().formatHex(random(8)), List.of(newKey(), newKey()));
    }

    Server(String account, List<String> keys) throws Exception {
        this(account, keys, Map.of());
    }

    /** With more settings, by the names of their variables. */
    Server(String account, List<String> keys, Map<String, String> more) throws Exception {
        this.account = account;
        this.keys = keys;
        folder = Files.createTempDirectory("rowhouse-java-");
        builder = new ProcessBuilder(binary().toString())
            .directory(folder.toFile())
            .redirectError(log().toFile());
        Map<String, String> settings = builder.environment();
        String database = settings.getOrDefault("DATABASE_URL", "");
        // The settings of whoever runs the tests must not leak in.
        settings.keySet().removeIf(name -> name.startsWith("ROWHOUSE_") || name.startsWith("DATABASE_URL"));
        settings.put("DATABASE_URL", database.isEmpty() ? "sqlite://" + folder.resolve("rowhouse.db") : database);
        settings.put("ROWHOUSE_LISTEN", "127.0.0.1:0");
        settings.put("ROWHOUSE_ACCOUNTS", account + ":" + String.join(":", keys));
        settings.putAll(more);
        process = builder.start();
        CompletableFuture<String> first = new CompletableFuture<>();
        Thread reader = new Thread(() -> read(first));
        reader.setDaemon(true);
        reader.start();
        String line = first.completeOnTimeout("", START_SECONDS, TimeUnit.SECONDS).get();
        var found = READY.matcher(line);
        if (!found.matches()) {
            process.destroyForcibly();
            throw new IllegalStateException(
                "the server did not become ready; it printed '" + line + "' and logged:\n" + Files.readString(log()));
        }
        origin = found.group(1);
    }

    private void read(CompletableFuture<String> first) {
        try (BufferedReader lines = process.inputReader(StandardCharsets.UTF_8)) {
            String line = lines.readLine();
            first.complete(line == null ? "" : line);
            while (lines.readLine() != null) {
                continue;
            }
        } catch (IOException error) {
            first.complete("");
        }
    }

    /** Asks the process to end, and reports what it logged as a failure. */
    void stop() throws Exception {
        boolean alive = process.isAlive();
        process.destroy();
        boolean ended = process.waitFor(STOP_SECONDS, TimeUnit.SECONDS);
        if (!ended) {
            process.destroyForcibly();
        }
        String text = Files.readString(log());
        try (var files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
        boolean failed = text.contains("ERROR") || text.contains("panicked");
        if (!alive || !ended || process.exitValue() != 0 || failed) {
            throw new IllegalStateException("the server did not end well; it logged:\n" + text);
        }
    }

    /** Runs a command of an operator with the same settings. */
    void command(String... words) throws Exception {
        ProcessBuilder command = new ProcessBuilder(Stream.concat(Stream.of(binary().toString()), Stream.of(words)).toList())
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("command.log").toFile());
        command.environment().clear();
        command.environment().putAll(builder.environment());
        Process running = command.start();
        boolean ended = running.waitFor(COMMAND_SECONDS, TimeUnit.SECONDS);
        if (!ended || running.exitValue() != 0) {
            running.destroyForcibly();
            throw new IllegalStateException(Files.readString(folder.resolve("command.log")));
        }
    }

    /** Where the server answers operators. */
    String admin() throws IOException {
        var found = Pattern.compile("operators are answered at (http://\\S+)").matcher(Files.readString(log()));
        if (!found.find()) {
            throw new IllegalStateException("the server has no admin listener");
        }
        return found.group(1);
    }

    String endpoint() {
        return origin + "/" + account;
    }

    AzureNamedKeyCredential credential() {
        return new AzureNamedKeyCredential(account, keys.get(0));
    }

    TableServiceClient service() {
        return builder().credential(credential()).buildClient();
    }

    /** A client without credentials, which never tries again, so that no failure is hidden. */
    TableServiceClientBuilder builder() {
        return new TableServiceClientBuilder().endpoint(endpoint()).retryOptions(once());
    }

    static RetryOptions once() {
        return new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(1)));
    }

    static String newKey() {
        return Base64.getEncoder().encodeToString(random(64));
    }

    private static byte[] random(int count) {
        byte[] bytes = new byte[count];
        RANDOM.nextBytes(bytes);
        return bytes;
    }

    private static Path binary() {
        String chosen = System.getenv("ROWHOUSE_BIN");
        boolean none = chosen == null || chosen.isEmpty();
        return Path.of(none ? "../../../target/debug/rowhouse" : chosen).toAbsolutePath();
    }

    private Path log() {
        return folder.resolve("server.log");
    }
}
