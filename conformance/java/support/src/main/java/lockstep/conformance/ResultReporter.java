package lockstep.conformance;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.junit.jupiter.api.extension.TestWatcher;

/**
 * Appends a line of JSON per test to the file in LOCKSTEP_RESULTS, as conformance/compatibility/result.go wants it. Every test
 * has it: JUnit finds it as a service.
 */
public final class ResultReporter implements InvocationInterceptor, TestWatcher {
    private static final Namespace HERE = Namespace.create(ResultReporter.class);
    private static final String FILE = System.getenv("LOCKSTEP_RESULTS");

    @Override
    public void interceptTestMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> call,
            ExtensionContext context) throws Throwable {
        remember(call, context);
        invocation.proceed();
    }

    @Override
    public void interceptTestTemplateMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> call,
            ExtensionContext context) throws Throwable {
        remember(call, context);
        invocation.proceed();
    }

    /** The arguments of a test are known here and nowhere else. */
    private static void remember(ReflectiveInvocationContext<Method> call, ExtensionContext context) {
        call.getArguments().stream().filter(Subject.class::isInstance).findFirst()
                .ifPresent(subject -> context.getStore(HERE).put(Subject.class, subject));
    }

    private static Subject subject(ExtensionContext context) {
        Subject argument = context.getStore(HERE).get(Subject.class, Subject.class);
        if (argument != null) {
            return argument;
        }
        return context.getTestInstance().filter(Subject.class::isInstance).map(Subject.class::cast).orElseGet(Subject::ofModule);
    }

    @Override
    public void testSuccessful(ExtensionContext context) {
        report(context, "passed", "");
    }

    @Override
    public void testFailed(ExtensionContext context, Throwable cause) {
        report(context, "failed", String.valueOf(cause));
    }

    @Override
    public void testAborted(ExtensionContext context, Throwable cause) {
        report(context, "skipped", String.valueOf(cause.getMessage()).replaceFirst("^Assumption failed: ", ""));
    }

    @Override
    public void testDisabled(ExtensionContext context, Optional<String> reason) {
        report(context, "skipped", reason.orElse("disabled"));
    }

    private static void report(ExtensionContext context, String result, String reason) {
        if (FILE == null || FILE.isEmpty()) {
            return;
        }
        Subject subject = subject(context);
        Map<String, String> line = new LinkedHashMap<>();
        line.put("client", subject.client());
        line.put("version", subject.version());
        line.put("mode", subject.mode());
        line.put("test", context.getRequiredTestMethod().getName());
        line.put("result", result);
        if (!reason.isEmpty()) {
            line.put("reason", reason);
        }
        append(line.entrySet().stream().map(e -> quoted(e.getKey()) + ":" + quoted(e.getValue()))
                .collect(Collectors.joining(",", "{", "}\n")));
    }

    /** One write per line: the modules' processes run side by side and share the file. */
    private static synchronized void append(String line) {
        try {
            Files.writeString(Path.of(FILE), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
