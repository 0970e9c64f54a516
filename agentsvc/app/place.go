package app

import (
	"stoa/agentsvc"
	"stoa/tenancy/grant"
)

// place returns where a path of the configuration lies below the folders that the app was granted by power. Its root is ""
// for the operator's own app, whose paths lead anywhere. What is wrong with the path is said of field.
func (b *builder) place(field, power, path string) (grant.Place, error) {
	if b.tenant.Own {
		return grant.Place{Path: path}, nil
	}
	p, err := b.folders.Find(b.tenant.Grants.Roots(power), path)
	if err != nil {
		return p, agentsvc.Invalid(field, "%v", err)
	}
	return p, nil
}
