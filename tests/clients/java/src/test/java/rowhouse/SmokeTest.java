package rowhouse;
import org.junit.jupiter.api.Test;
class SmokeTest { @Test void x() {} }
