package rowhouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The first program that a reader runs does what its comments say. */
class FirstStepsTest {
    @TempDir
    Path folder;

    private static String found(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern, Pattern.DOTALL).matcher(text);
        assertTrue(matcher.find(), pattern);
        return matcher.group(1);
    }

    private List<String> printed(String program) throws Exception {
        Path source = Files.writeString(folder.resolve("FirstSteps.java"), program);
        Path output = folder.resolve("output");
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        Process process = new ProcessBuilder(java, "-cp", classes, source.toString())
            .redirectErrorStream(true)
            .redirectOutput(output.toFile())
            .start();
        boolean ended = process.waitFor(120, TimeUnit.SECONDS);
        process.destroyForcibly();
        List<String> lines = Files.readAllLines(output);
        assertTrue(ended && process.waitFor() == 0, lines.toString());
        return lines;
    }

    @Test
    void theProgramPrintsWhatItSaysAndDoesSoAgain() throws Exception {
        String page = Files.readString(Path.of("../../../docs/tutorials/first-steps.md"));
        String program = found("```java\n(.*?)```", page);
        List<String> expected = Pattern.compile("\\); // (.*)").matcher(program).results().map(one -> one.group(1)).toList();
        assertEquals(2, expected.size());
        Server server = new Server("devstoreaccount1", List.of(found("AccountKey=([^;]+)", program)));
        try {
            String adapted = program.replace("http://127.0.0.1:10002", server.origin);
            assertNotEquals(program, adapted);
            assertEquals(expected, printed(adapted));
            assertEquals(expected, printed(adapted));
        } finally {
            server.stop();
        }
    }
}
