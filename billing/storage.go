package billing

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

const hourMicros = int64(time.Hour / time.Microsecond)

// SampleStorage notes how many bytes the app keeps at present, once in each hour whoever comes first, and writes the usage
// of the days that are over.
func (m *Meter) SampleStorage(ctx context.Context, bytes int64) error {
	err := m.service.db.Tenant(m.tenant).RunTx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO stored_sample (tenant, hour, bytes) VALUES ($1, stoa_now() / CAST($2 AS BIGINT), $3)
			ON CONFLICT (tenant, hour) DO NOTHING`, string(m.tenant), hourMicros, bytes)
		if err != nil {
			return err
		}
		return m.writeStorageDays(ctx, tx, maxRecordDelay)
	})
	if err != nil {
		return fmt.Errorf("note what app %s stores: %w", m.tenant, err)
	}
	return nil
}

// writeStorageDays makes a usage row of the samples of each day that has been over for a while, of today's as well where that is
// less than nothing. What was kept in an hour counts as a twenty-fourth of what is kept for the day; a day on which nothing
// was kept is none. A row that is there already stays.
func (m *Meter) writeStorageDays(ctx context.Context, tx *db.Tx, after time.Duration) error {
	var until int64
	err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&until) }, `SELECT (stoa_now() - CAST($1 AS BIGINT)) / CAST($2 AS BIGINT) / 24 * 24`,
		after.Microseconds(), hourMicros)
	if err != nil {
		return err
	}
	var rows []Usage
	err = tx.Query(ctx, func(r db.Row) error {
		var day, bytes int64
		err := r.Scan(&day, &bytes)
		at := time.Unix(day*86400, 0).UTC()
		rows = append(rows, Usage{
			Key: "stored." + at.Format(time.DateOnly), Kind: Storage, At: at, Quantities: Quantities{StoredBytes: ceilDiv(bytes, 24)},
		})
		return err
	}, `SELECT hour / 24, `+sumSQL("bytes")+` FROM stored_sample WHERE tenant = $1 AND hour < $2 GROUP BY 1 HAVING MAX(bytes) > 0`,
		string(m.tenant), until)
	if err != nil {
		return err
	}
	m.priceRows(m.chargeCurrency(), rows)
	for _, u := range rows {
		if _, err := tx.Exec(ctx, usageTable.SQL(), u.rowValues(m.tenant)...); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `DELETE FROM stored_sample WHERE tenant = $1 AND hour < $2`, string(m.tenant), until)
	return err
}
