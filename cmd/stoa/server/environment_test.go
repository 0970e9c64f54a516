package server

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestUnknownVariables warns of variables that nothing reads, without their values, and of no others.
func TestUnknownVariables(t *testing.T) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "STOA_") {
			t.Setenv(name, "") // an empty variable is as one that is not set
		}
	}
	for name, value := range map[string]string{
		"STOA_QUEUE_WORKER": "s3cret", "STOA_DATABASE_FILES": "s3cret", "STOA_SOMETHING_ELSE": "s3cret", // unknown
		"STOA_QUEUE_WORKERS": "4", "STOA_GRPC_PORT": "0", "STOA_APP_HOSTS": "{app}.example", "STOA_MASTER_KEY_FILE": "/k", "STOA_EXPORT_FOLDER": "/x",
		"STOA_EXPORT_STRIPE_KEY": "k", "STOA_INVOICE_GRACE": "72h", "STOA_NOTIFICATION_PRIVATE_NETWORK": "true", "STOA_TOKEN": "t", "STOA_MOTTO": "m",
	} {
		t.Setenv(name, value)
	}
	app := &DefaultApp{source: []byte(`agents: {a: {description: "${STOA_MOTTO}"}}`)}
	var log bytes.Buffer
	app.WarnUnknownVariables(slog.New(slog.NewTextHandler(&log, nil)))
	var got []string
	for line := range strings.Lines(log.String()) {
		_, text, _ := strings.Cut(line, " msg=")
		got = append(got, "msg="+text)
	}
	want := []string{
		"msg=\"the environment variable is not known and has no effect\" variable=STOA_DATABASE_FILES did_you_mean=STOA_DATABASE_FILE\n",
		"msg=\"the environment variable is not known and has no effect\" variable=STOA_QUEUE_WORKER did_you_mean=STOA_QUEUE_WORKERS\n",
		"msg=\"the environment variable is not known and has no effect\" variable=STOA_SOMETHING_ELSE\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDocumentedVariables checks that every variable that the documentation names is known.
func TestDocumentedVariables(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	known := listVariables()
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`STOA_[A-Z_]*[A-Z]\b`).FindAllString(string(text), -1) {
			isOfTests := strings.HasPrefix(name, "STOA_TEST_") || strings.HasPrefix(name, "STOA_FAULTS_")
			if !isOfTests && !slices.Contains(known, name) {
				t.Errorf("%s names %s, which is not known", page, name)
			}
		}
	}
}

// TestContentOfSecretFiles reads a secret from files that have it alone, and from files of lines NAME=value.
func TestContentOfSecretFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	t.Setenv(AdminSecretName, "")
	t.Setenv(AdminSecretName+"_FILE", path)
	cases := map[string]struct{ content, want, message string }{
		"the value":                    {content: "s3cret\n", want: "s3cret"},
		"padding":                      {content: "c2VjcmV0czE=\n", want: "c2VjcmV0czE="},
		"padding alone":                {content: "ABCDE==\n", want: "ABCDE=="},
		"capitals and padding":         {content: "ABCDEFGH=\n", want: "ABCDEFGH="},
		"an address":                   {content: "redis://host/0?db=1&x=y", want: "redis://host/0?db=1&x=y"},
		"its line":                     {content: "OTHER=x\nSTOA_ADMIN_SECRET=a=b=\n", want: "a=b="},
		"its line in a comment's file": {content: "# secrets\n\nSTOA_ADMIN_SECRET=v\n", want: "v"},
		"another name of Stoa":         {content: "STOA_MASTER_KEY=x\n", message: path + " has a line for STOA_MASTER_KEY, and none for STOA_ADMIN_SECRET"},
		"another name":                 {content: "ADMIN_SECRET=x\n", message: path + " has a line for ADMIN_SECRET, and none for STOA_ADMIN_SECRET"},
		"several other names":          {content: "DB_URL=x\n\nADMIN2=y\n", message: path + " has a line for DB_URL, and none for STOA_ADMIN_SECRET"},
		"a line and a text":            {content: "first\nA=y\n", want: "first\nA=y"},
		"an empty line":                {content: "STOA_ADMIN_SECRET=\n", message: path + " has a line for STOA_ADMIN_SECRET without a value"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readSecret(AdminSecretName)
			if got != c.want || (err != nil) != (c.message != "") || err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %q, %v, want %q, an error with %q", got, err, c.want, c.message)
			}
		})
	}
}

// TestMasterKeyFile checks that an error about a master key names the file that it was read from, and not the key.
func TestMasterKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(AdminSecretName, strings.Repeat("s", 32))
	t.Setenv(MasterKeyName, "")
	t.Setenv(MasterKeyName+"_FILE", path)
	for name, read := range map[string]func() error{
		"start": func() error {
			s, err := loadSecrets(t.Context(), dbtest.NewSQLite(t), "sqlite://stoa.db")
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.openKeyring()
			return err
		},
		"doctor": func() error { _, _, _, err := DatabaseSettings{URL: "sqlite://stoa.db"}.FindSecrets(); return err },
	} {
		err := read()
		if want := MasterKeyName + "_FILE (" + path + ")"; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want an error with %s", name, err, want)
		}
	}
}

// TestSecretsPath checks that the start names the whole path of the file with the generated secrets.
func TestSecretsPath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{AdminSecretName, MasterKeyName, MetricsTokenName} {
		t.Setenv(name, "")
	}
	s, err := loadSecrets(t.Context(), dbtest.NewSQLite(t), "sqlite://stoa.db")
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(s.path) || filepath.Base(s.path) != "stoa.secrets" {
		t.Errorf("the secrets are in %q, want an absolute path", s.path)
	}
	// The text at the start names the file as the place of the admin secret only where it has it.
	t.Setenv(AdminSecretName, strings.Repeat("s", 32))
	if s, err = loadSecrets(t.Context(), dbtest.NewSQLite(t), "sqlite://stoa.db"); err != nil || s.path != "" {
		t.Errorf("with an admin secret in the environment it is said to be in %q, %v", s.path, err)
	}
}

// TestSecretsFileNotReadable: only a change of the file cures it, so that a service manager does not start the server again. A folder
// in its place can be read by no user, not even root.
func TestSecretsFileNotReadable(t *testing.T) {
	t.Parallel()
	var wrong settingError
	if err := new(processSecrets).fillFromFile(t.TempDir(), nil); !errors.As(err, &wrong) {
		t.Error(err)
	}
}
