package lockstep.conformance;

import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

/** Says, before the first test, which client runs against which server. */
public final class Banner implements LauncherSessionListener {
    @Override
    public void launcherSessionOpened(LauncherSession session) {
        System.out.println("client " + ClientUnderTest.coordinates() + ":" + ClientUnderTest.loadedVersion()
                + " against " + Endpoints.all());
    }
}
