package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/cmd/stoa/server"
)

// TestPermissionAdvice checks that what this user may not read is not to be made anew. The errors are made here, because
// root, as which tests may run, may read everything.
func TestPermissionAdvice(t *testing.T) {
	t.Parallel()
	forbidden := &fs.PathError{Op: "open", Path: "/etc/stoa/secrets", Err: fs.ErrPermission}
	for _, tt := range []struct{ name, action, want, without string }{
		{"secrets", adviseSecrets(fmt.Errorf("STOA_MASTER_KEY_FILE: %w", forbidden)), "readable for the user that runs Stoa", "openssl"},
		{"joined", adviseSecrets(errors.Join(forbidden)), "readable for the user that runs Stoa", "openssl"},
		{"no file of secrets", adviseSecrets(fs.ErrNotExist), "restore the file", "openssl"},
		{"secrets of another form", adviseSecrets(errors.New("32 bytes")), "For a new database make a secret with: openssl", "chown"},
		{"certificate", adviseCertificate(fmt.Errorf("server.tls: key_file: %w", forbidden)), "readable for the group", "write a certificate"},
		{"no certificate", adviseCertificate(fs.ErrNotExist), "write a certificate", "readable"},
	} {
		if !strings.Contains(tt.action, tt.want) || strings.Contains(tt.action, tt.without) {
			t.Errorf("%s: the action is %q, want %q and not %q", tt.name, tt.action, tt.want, tt.without)
		}
	}
}

// TestFileError opens what is no SQLite database, and checks the advice for one that cannot be opened.
func TestFileError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stoa.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	i := newTestInspector(t, server.Flags{Database: pointTo("sqlite://" + path)}, nil)
	checks := i.checkDatabase(t.Context())
	wantCheck(t, checks, "database", Failure, path)
	if !strings.Contains(checks[0].Action, "restore a backup") {
		t.Errorf("the action is %q", checks[0].Action)
	}
	check := describeFileError(path, errors.New("unable to open database file (14)"))
	wantCheck(t, []Check{check}, "database", Failure, path+": unable to open database file")
	if !strings.Contains(check.Action, "give "+path) {
		t.Errorf("the action is %q", check.Action)
	}
}

// TestTextOfJoinedErrors: each check has one line, and below it one with what to do.
func TestTextOfJoinedErrors(t *testing.T) {
	t.Parallel()
	cause := errors.Join(errors.New("first"), errors.New("second"))
	want := "fail  secrets  first; second\n               correct them\n0 ok, 0 warnings, 1 failed, 0 skipped\n"
	if got := (Report{Checks: []Check{fail("secrets", cause.Error(), "correct them")}}).Text(); got != want {
		t.Errorf("%q", got)
	}
}
