package usage

import (
	"context"
	"fmt"
	"math"
	"time"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// hourMicros is an hour in microseconds: the divisor that turns stoa_now() into the hour of a sample.
const hourMicros = int64(time.Hour / time.Microsecond)

// SampleStorage records how many bytes the app stores at present, once for each hour: of several processes the first
// one's sample counts. It also writes the usage rows of the days that have ended.
func (m *Meter) SampleStorage(ctx context.Context, bytes int64) error {
	err := m.service.db.Tenant(m.tenant).RunTx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO stored_sample (tenant, hour, bytes) VALUES ($1, stoa_now() / CAST($2 AS BIGINT), $3)
			ON CONFLICT (tenant, hour) DO NOTHING`, string(m.tenant), hourMicros, bytes)
		if err != nil {
			return err
		}
		return m.writeEndedDays(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("note what app %s stores: %w", m.tenant, err)
	}
	return nil
}

// CloseStorage writes the usage rows of all days that have samples, also of the current one, and deletes the samples:
// the app is about to be deleted.
func (m *Meter) CloseStorage(ctx context.Context) error {
	return m.service.db.Platform().RunTx(ctx, func(tx *db.Tx) error { return m.writeDays(ctx, tx, math.MaxInt64) })
}

// writeEndedDays writes the rows of the days that ended at least MaxRecordDelay ago: samples of a day may still be
// uncommitted when it ends.
func (m *Meter) writeEndedDays(ctx context.Context, tx *db.Tx) error {
	var until int64
	// The division by 24 and multiplication cut off the hours of the day that has not ended.
	err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&until) }, `SELECT (stoa_now() - CAST($1 AS BIGINT)) / CAST($2 AS BIGINT) / 24 * 24`,
		MaxRecordDelay.Microseconds(), hourMicros)
	if err != nil {
		return err
	}
	return m.writeDays(ctx, tx, until)
}

// writeDays writes a usage row for each day with a sample before the hour until, and deletes these samples. Each sample
// counts as a 24th of its value; a day without bytes has no row. A row that exists already stays.
func (m *Meter) writeDays(ctx context.Context, tx *db.Tx, until int64) error {
	var rows []Row
	err := tx.Query(ctx, func(r db.Row) error {
		var day, bytes int64
		err := r.Scan(&day, &bytes)
		at := time.Unix(day*86400, 0).UTC()
		rows = append(rows, Row{
			Key: "stored." + at.Format(time.DateOnly), Usage: price.Usage{Kind: amount.Storage, At: at, Quantities: amount.Quantities{StoredBytes: amount.CeilDiv(bytes, 24)}},
		})
		return err
	}, `SELECT hour / 24, `+amount.SumSQL("bytes")+` FROM stored_sample WHERE tenant = $1 AND hour < $2 GROUP BY 1 HAVING MAX(bytes) > 0`,
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
