package doctor

import (
	"context"
	"errors"
	"fmt"
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
		p := invalid.Problems[0]
		detail := fmt.Sprintf("%s:%d:%d: %s", i.ConfigFile, p.Line, p.Column, strings.TrimPrefix(p.Path+": "+p.Message, ": "))
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
		return []Check{fail(name, err.Error(), "correct the variable or the file; run this as the user of the server, who reads it; make a secret with: "+makeSecret)}
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

// usesSQLite reports whether the database is a SQLite file, or in memory.
func (o Options) usesSQLite() bool { return strings.HasPrefix(o.Settings.Database.URL, "sqlite://") }
