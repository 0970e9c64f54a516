package admin

import (
	"bytes"
	"context"
	"encoding/json"

	"stoa/agentsvc"
	configdocument "stoa/agentsvc/config/document"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/mutation"
	"stoa/tenancy"
)

// patchApp answers PATCH /admin/apps/{app} with a JSON merge patch (RFC 7386): objects are merged member by member, null
// clears a member, and whatever is left out stays.
func (h appHandler) patchApp(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var patch appPatch
	if err := o.DecodeBody(&patch, false); err != nil {
		return mutation.Result{}, err
	}
	app, err := h.apps.PatchApp(ctx, o.Actor, o.AppName(), func(current func() tenancy.App) (tenancy.AppChange, error) {
		change, err := patch.newChange(current())
		change.IfMatch = o.IfMatch
		return change, err
	}, o.DryRun)
	return newAppResult(app), err
}

// appPatch are the members of a merge patch of an app.
type appPatch map[string]json.RawMessage

// newChange returns the change that the patch makes of the app as it is.
func (p appPatch) newChange(current tenancy.App) (c tenancy.AppChange, err error) {
	settings := settingsBody{DisplayName: current.DisplayName, Labels: current.Labels, Grants: current.Grants, Plan: current.Plan, Limits: newLimitsRequest(current.Limits), Auth: issuerBody(current.Auth)}
	merged, err := p.mergeInto(settings)
	if err != nil {
		return c, err
	}
	var b settingsBody
	if err := decode.JSON(merged, &b, true); err != nil {
		return c, err
	}
	c = b.toChange()
	if c.Config, err = p.mergeConfig(current.Config.Text); err != nil {
		return c, err
	}
	if c.Secrets, c.RemovedSecrets, err = p.parseSecrets(); err != nil {
		return c, err
	}
	// What the patch does not name is not checked anew: it may have been set under other rules.
	if p["display_name"] == nil {
		c.DisplayName = nil
	}
	if p["labels"] == nil {
		c.Labels = nil
	}
	if p["grants"] == nil {
		c.Grants = nil
	}
	if p["plan"] == nil {
		c.Plan = nil
	}
	if p["limits"] == nil {
		c.Limits = tenancy.LimitsChange{}
	}
	if p["auth"] == nil {
		c.Auth = nil
	}
	return c, nil
}

// mergeInto returns the JSON of the settings with the patch, without its configuration and secrets.
func (p appPatch) mergeInto(settings settingsBody) ([]byte, error) {
	was, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	target, members := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(was, &target); err != nil {
		return nil, err
	}
	for name, raw := range p {
		if name == "config" || name == "secrets" {
			continue
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, err
		}
		members[name] = v
	}
	return json.Marshal(mergePatch(target, members))
}

// mergeConfig returns the configuration after the patch, nil if the patch has none. A text replaces the configuration, an
// object is merged into the one in text: where it only changes values the text keeps its form, else the result is JSON
// in the order of the text.
func (p appPatch) mergeConfig(text []byte) ([]byte, error) {
	raw := p["config"]
	switch {
	case raw == nil:
		return nil, nil
	case bytes.Equal(raw, jsonNull):
		return nil, agentsvc.NewInvalidError("config", "cannot be cleared: leave it out to keep it")
	case raw[0] != '{':
		var whole document
		err := json.Unmarshal(raw, &whole)
		return whole, err
	}
	patch, err := configdocument.Decode(raw)
	if err != nil {
		return nil, err
	}
	target, err := configdocument.Decode(text)
	if err != nil || text == nil {
		return nil, agentsvc.NewError(agentsvc.CodePrecondition, "the stored configuration cannot be read any more: send a whole one, as text or with PUT")
	}
	merged, _ := mergePatch(target, patch).(map[string]any)
	return configdocument.Amend(text, merged, func(comment string) string { return comment }, raw), nil
}

// parseSecrets returns the secrets that the patch sets, and the names of those that it removes.
func (p appPatch) parseSecrets() (set map[string]string, removed []string, err error) {
	if p["secrets"] == nil {
		return nil, nil, nil
	}
	var given map[string]*string
	if err := decode.JSON(p["secrets"], &given, false); err != nil {
		return nil, nil, agentsvc.NewInvalidError("secrets", "must be an object of texts; null removes a secret")
	}
	if given == nil {
		return nil, nil, agentsvc.NewInvalidError("secrets", "cannot be cleared as a whole: name each secret that is to be removed, with null")
	}
	set = map[string]string{}
	for name, value := range given {
		if value == nil {
			removed = append(removed, name)
		} else {
			set[name] = *value
		}
	}
	return set, removed, nil
}

var jsonNull = []byte("null")

// mergePatch returns target with a patch, as RFC 7386 defines it. It does not change its arguments.
func mergePatch(target, patch any) any {
	members, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	before, _ := target.(map[string]any)
	for name, v := range before {
		merged[name] = v
	}
	for name, v := range members {
		if v == nil {
			delete(merged, name)
		} else {
			merged[name] = mergePatch(merged[name], v)
		}
	}
	return merged
}
