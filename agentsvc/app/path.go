package app

import (
	"stoa/agentsvc"
	"stoa/tenancy/grant"
)

// resolvePath resolves a path of the configuration within the folders that the app was granted for power. For the
// operator's own app the path is used as it is, with an empty Root. A problem is an [agentsvc.InvalidError] of field.
func (b *builder) resolvePath(field, power, path string) (grant.RootedPath, error) {
	if b.tenant.DefaultApp {
		return grant.RootedPath{Path: path}, nil
	}
	p, err := b.folderGuard.ResolvePath(b.tenant.Grants.Roots(power), path)
	if err != nil {
		return p, agentsvc.NewInvalidError(field, "%v", err)
	}
	return p, nil
}
