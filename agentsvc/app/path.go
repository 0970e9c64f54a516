package app

import (
	"stoa/agentsvc"
	"stoa/tenancy/grant"
)

// resolvePath returns where a path of the configuration lies below the folders that the app was granted by power. Its root is ""
// for the operator's own app, whose paths lead anywhere. What is wrong with the path is said of field.
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
