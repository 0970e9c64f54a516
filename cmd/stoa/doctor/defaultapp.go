package doctor

import (
	"context"

	"stoa/agentsvc/config"
)

// checkDefaultApp reports whether callers from other machines need no credential for the agents of the app default.
func (i *inspector) checkDefaultApp(context.Context) []Check {
	const name = "default_app"
	cfg := i.Config
	switch {
	case cfg == nil && i.ConfigErr != nil:
		return []Check{skip(name, "the configuration cannot be used")}
	case cfg == nil && !i.usesSQLite():
		return []Check{skip(name, "no --config: this process has no app default")}
	case cfg == nil:
		cfg = config.DefaultConfig(nil)
	}
	reason := i.Settings.DescribeExposure(cfg)
	switch {
	case reason != "":
		return []Check{warn(name, "it is open: everyone who reaches this server may do everything in it ("+reason+")",
			"set server.auth in the file (docs/identity.md), or move the agents to an app of their own, whose callers need a token (stoa app create); for callers on this machine alone use --host 127.0.0.1 without public URL and trusted proxies")}
	case cfg.Server.Auth.Enabled:
		return []Check{pass(name, "server.auth is enabled")}
	case len(cfg.Agents) == 0:
		return []Check{pass(name, "it has no agent, and needs no credential")}
	}
	// Also a worker, which answers no calls, and an app whose agents are not public.
	return []Check{pass(name, "no other machine reaches its agents without a credential")}
}
