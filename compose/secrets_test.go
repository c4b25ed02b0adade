// SPDX-License-Identifier: MIT

package compose_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"
)

// secretsAt is the folder in which containers have the password of their server.
const secretsAt = "/secrets"

// makesSecrets reports whether the service writes a password, which others read.
func makesSecrets(s types.ServiceConfig) bool {
	i := secretsOf(s)
	return i >= 0 && !s.Volumes[i].ReadOnly
}

// secretsOf returns the index of the volume with the password.
func secretsOf(s types.ServiceConfig) int {
	return slices.IndexFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == secretsAt })
}

var (
	assigned = regexp.MustCompile(`(?i)(?:password|passwd|pwd|secret)["']?[:=]\s*["']?([^\s"'$]\S*|\$\{\w+:?-\S+)`)
	inURL    = regexp.MustCompile(`\w:([^\s/@:$]+)@`)
)

// passwords finds what looks like one: a value of a variable, or what stands before the host of a URL.
func passwords(text string) []string {
	var found []string
	for _, match := range append(assigned.FindAllString(text, -1), inURL.FindAllString(text, -1)...) {
		if !strings.Contains(text, match+"sha256:") { // the digest of an image
			found = append(found, match)
		}
	}
	return found
}

func TestCompose_NoFileHasAPassword(t *testing.T) {
	for _, file := range append(everythingsFiles(t), "Dockerfile", "prove.yaml", "kubernetes/shop.yaml", "../.github/workflows/ci.yaml") {
		if found := passwords(read(t, file)); len(found) > 0 {
			t.Errorf("%s has a password: %q", file, found)
		}
	}
	for _, line := range []string{
		"POSTGRES_PASSWORD: shop", `MYSQL_ROOT_PASSWORD: "shop"`, "POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:-shop}", "PGPASSWORD=shop psql",
		"SHOP_POSTGRES_URL: postgres://shop:shop@postgres:5432/shop", "SHOP_MYSQL_DSN='root:shop@tcp(127.0.0.1:18006)/'",
	} {
		if len(passwords(line)) == 0 {
			t.Errorf("the password in %q is not found", line)
		}
	}
}

func TestCompose_ServicesThatReadAPasswordMountItAndWaitForIt(t *testing.T) {
	p := everything(t)
	for _, problem := range secretProblems(p) {
		t.Error(problem)
	}
	for name, want := range map[string]string{"postgres": "secrets", "ha-postgres1": "ha-secrets", "ha-postgres2": "ha-secrets", "mysql": "mysql-secrets"} {
		if s := p.Services[name]; s.Volumes[secretsOf(s)].Source != want {
			t.Errorf("%s has the password of %s", name, s.Volumes[secretsOf(s)].Source)
		}
	}
	// Each of these mistakes is found.
	for name, mistake := range map[string]func(s types.ServiceConfig) types.ServiceConfig{
		"does not wait": func(s types.ServiceConfig) types.ServiceConfig {
			delete(s.DependsOn, "secrets")
			return s
		},
		"does not mount it": func(s types.ServiceConfig) types.ServiceConfig {
			s.Volumes = slices.Delete(s.Volumes, secretsOf(s), secretsOf(s)+1)
			return s
		},
		"may write it": func(s types.ServiceConfig) types.ServiceConfig {
			s.Volumes[secretsOf(s)].ReadOnly = false
			return s
		},
		"does not read it": func(s types.ServiceConfig) types.ServiceConfig {
			s.Environment = nil
			return s
		},
		"has the password of another server": func(s types.ServiceConfig) types.ServiceConfig {
			s.Volumes[secretsOf(s)].Source = "ha-secrets"
			return s
		},
	} {
		wrong, err := load(t, []string{"*"})
		if err != nil {
			t.Fatal(err)
		}
		wrong.Services["shop1"] = mistake(wrong.Services["shop1"])
		if len(secretProblems(wrong)) == 0 {
			t.Errorf("a service that %s is not found", name)
		}
	}
}

// secretProblems compares each service that names a file with a password, and each that mounts one.
func secretProblems(p *types.Project) (problems []string) {
	makers := map[string]string{} // of volumes
	for _, s := range p.Services {
		if makesSecrets(s) {
			volume := s.Volumes[secretsOf(s)].Source
			if makers[volume] != "" {
				problems = append(problems, fmt.Sprintf("both %s and %s write %s", s.Name, makers[volume], volume))
			}
			makers[volume] = s.Name
		}
	}
	for _, s := range p.Services {
		i := secretsOf(s)
		if makesSecrets(s) {
			continue
		}
		if reads := namesSecrets(s); reads != (i >= 0) {
			problems = append(problems, fmt.Sprintf("%s reads a password: %v, mounts one: %v", s.Name, reads, i >= 0))
		}
		if i < 0 {
			continue
		}
		volume := s.Volumes[i].Source
		if maker := makers[volume]; s.DependsOn[maker].Condition != types.ServiceConditionCompletedSuccessfully {
			problems = append(problems, fmt.Sprintf("%s does not wait for the service %q, which writes %s", s.Name, maker, volume))
		}
		for _, server := range p.Services {
			if names(s, server.Name) && namesSecrets(server) && server.Volumes[secretsOf(server)].Source != volume {
				problems = append(problems, fmt.Sprintf("%s has %s, its server %s has another password", s.Name, volume, server.Name))
			}
		}
	}
	return problems
}

// namesSecrets reports whether a setting of s is a file with a password.
func namesSecrets(s types.ServiceConfig) bool {
	for _, value := range s.Environment {
		if value != nil && regexp.MustCompile(`(^|=)`+secretsAt+`/`).MatchString(*value) {
			return true
		}
	}
	return false
}

// runSecrets runs the script of the service secrets in a folder, and returns what a server reads there and what clients do.
func runSecrets(t *testing.T, folder string, change func(script string) string) (password, pgpass string, err error) {
	t.Helper()
	s := project(t).Services["secrets"]
	script := change(strings.Replace(s.Command[0], secretsAt, folder, 1))
	if out, err := exec.Command(s.Entrypoint[0], append(slices.Clone(s.Entrypoint[1:]), script)...).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%w: %s", err, out)
	}
	config, err := pgx.ParseConfig("postgres://shop@ha-postgres1,ha-postgres2/shop?passfile=" + filepath.Join(folder, "pgpass"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(read(t, filepath.Join(folder, "password"))), config.Password, nil
}

func unchanged(script string) string { return script }

// The password is made once, whole, and in both files the same.
func TestCompose_ThePasswordIsMadeOnce(t *testing.T) {
	folder := t.TempDir()
	run := func() string {
		t.Helper()
		password, pgpass, err := runSecrets(t, folder, unchanged)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(password) {
			t.Fatalf("the password is %q", password)
		}
		if pgpass != password {
			t.Errorf("clients read %q, the server %q", pgpass, password)
		}
		return password
	}
	first := run()
	if again := run(); again != first {
		t.Errorf("the second start makes another password: %s, %s", first, again)
	}
	if err := os.Remove(filepath.Join(folder, "password")); err != nil { // killed before the last step
		t.Fatal(err)
	}
	if other := run(); other == first {
		t.Error("a password that was lost came back")
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v: %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode()&0o444 != 0o444 {
			t.Errorf("%s: %v, %v: the users of other containers cannot read it", e.Name(), info.Mode(), err)
		}
	}
}

// A power failure right after the rename may empty each file that was not synced before. The next start must find both
// files whole, or make both anew.
func TestCompose_ThePasswordIsWholeAfterAPowerFailure(t *testing.T) {
	const synced = "sync pgpass new"
	for _, c := range []struct {
		synced, emptied string
		whole           bool
	}{
		{synced, "pgpass", true},
		{synced, "new", true},
		{synced, "pgpass new", true},
		{"sync new", "pgpass", false}, // this mistake is found
	} {
		folder := t.TempDir()
		change := func(script string) string { return strings.Replace(script, synced, c.synced, 1) }
		_, _, err := runSecrets(t, folder, func(script string) string {
			return `
				sync() { command sync "$@"; synced=" $* "; }
				mv() {
					for file in ` + c.emptied + `; do
						case $synced in *" $file "*) ;; *) : > $file ;; esac
					done
					command mv "$@"
					exit 9
				}
			` + change(script)
		})
		if err == nil || !strings.Contains(err.Error(), "exit status 9") {
			t.Fatalf("the power did not fail: %v", err)
		}
		password, pgpass, err := runSecrets(t, folder, change)
		if err != nil || password == "" || (pgpass == password) != c.whole {
			t.Errorf("%s, then %s is empty: clients read %q, the server %q: %v", c.synced, c.emptied, pgpass, password, err)
		}
	}
}
