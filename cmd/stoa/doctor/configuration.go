package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"stoa/agentsvc/config/document"
	"stoa/authz"
	"stoa/cmd/stoa/server"
)

// checkConfiguration reports whether the operator's file can be used, and variables that have no effect.
func (i *inspector) checkConfiguration(context.Context) []Check {
	environment := pass("environment", "every STOA_ variable has an effect")
	if len(i.UnknownVariables) > 0 {
		environment = warn("environment", "no effect: "+strings.Join(i.UnknownVariables, ", "), "correct or remove these variables")
	}
	return []Check{i.checkFile(), environment}
}

// checkFile reports whether the operator's file can be used.
func (i *inspector) checkFile() Check {
	const name = "configuration"
	var invalid *document.Error
	switch {
	case errors.As(i.ConfigErr, &invalid) && len(invalid.Problems) > 0:
		detail := (&document.Error{File: i.ConfigFile, Problems: invalid.Problems[:1]}).Error()
		if more := len(invalid.Problems) - 1; more > 0 {
			detail += fmt.Sprintf(" (and %d more)", more)
		}
		return fail(name, detail, fmt.Sprintf("correct the file; stoa validate %s shows every error", i.ConfigFile))
	case i.ConfigErr != nil:
		return fail(name, i.ConfigErr.Error(), "make the file readable for this user, or correct --config")
	case i.ConfigFile == "":
		return pass(name, "no --config: on SQLite the built-in app is served, on PostgreSQL the apps of the database alone")
	case len(i.ConfigWarnings) > 0:
		return warn(name, i.ConfigFile+": "+strings.Join(i.ConfigWarnings, "; "), "correct the file; stoa validate "+i.ConfigFile+" shows every warning")
	}
	return pass(name, "%s", i.ConfigFile)
}

// makeSecret is the command that makes a secret.
const makeSecret = "openssl rand -base64 32"

// checkSecrets reports whether the admin secret and the master keys are there and have their form.
func (i *inspector) checkSecrets(context.Context) []Check {
	const name = "secrets"
	admin, keys, source, err := i.Settings.Database.FindSecrets()
	if err == nil && admin != "" {
		_, err = authz.NewAdminSecret(admin, nil)
	}
	isFile := i.usesSQLite()
	switch {
	case err != nil:
		return []Check{fail(name, err.Error(), adviseSecrets(err))}
	case (admin == "" || keys == nil) && !isFile:
		return []Check{fail(name, server.AdminSecretName+" and "+server.MasterKeyName+" are not both set",
			"set them, or the same names with _FILE, to the same values in every process; make one with: "+makeSecret)}
	case admin == "" || keys == nil:
		return []Check{pass(name, "the first start generates them in %s", server.SecretsFile(i.Settings.Database.URL))}
	case strings.Contains(source, " in "):
		return []Check{pass(name, "%s", source)}
	}
	return []Check{pass(name, "%s and %s are set", server.AdminSecretName, server.MasterKeyName)}
}

// adviseSecrets returns what to do about secrets that cannot be used. A new master key makes a database that has data
// unreadable, so that none is proposed for a file that cannot be read.
func adviseSecrets(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "make the file readable for the user that runs Stoa (chown, chmod 0600; chmod 0640 for its group), and run this as that user"
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "correct the path in the variable, or restore the file: a database that has data can only be read with the master key that it was written with"
	}
	return "correct the variable or the file; a database that has data can only be read with the master key that it was written with. For a new database make a secret with: " + makeSecret
}

// usesSQLite reports whether the database is a SQLite file, or in memory.
func (o Options) usesSQLite() bool { return strings.HasPrefix(o.Settings.Database.URL, "sqlite://") }
