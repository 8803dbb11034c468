package compose

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPasswordIsASecret: docker-compose.yml gives the clients' password as a secret, from a file that
// exists and holds the default password of README.md.
func TestPasswordIsASecret(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	text := read("docker-compose.yml")
	if m := regexp.MustCompile(`(?m)^ *LOCKSTEP_\w*(REQUIREPASS|PASS|PEER_SECRET):.*`).FindString(text); m != "" {
		t.Errorf("a secret in the environment: %s", m)
	}
	file := regexp.MustCompile(`(?m)^secrets:\n  password:\n    file: \$\{PASSWORD_FILE:-\./(.*)\}$`).FindStringSubmatch(text)
	if file == nil || !strings.Contains(text, "  secrets: [password]\n") || !strings.Contains(text, "LOCKSTEP_REQUIREPASS_FILE: /run/secrets/password\n") {
		t.Fatal("the nodes are not given the secret password")
	}
	password, _, _ := strings.Cut(read(file[1]), "\n")
	for _, where := range []struct{ name, says string }{
		{"README.md", "password `" + password + "`"},
		{"docker-compose.yml", "redis-cli -a " + password + " SET"},
	} {
		if !strings.Contains(read(where.name), where.says) {
			t.Errorf("%s does not say %s", where.name, where.says)
		}
	}
}
