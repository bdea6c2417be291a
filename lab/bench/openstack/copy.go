// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"fairlead.io/fairlead/lab/bench"
)

// Octavia's API takes a second of the processor for a load balancer of ten members. So only the first one is made by
// it; the others are copies of its rows in Octavia's database, and of its document in the LB API.

// copyID is the ID of an object's nth copy.
func copyID(id string, n int) string { return fmt.Sprintf("%08x%s", n, id[8:]) }

// copyVIP is the VIP of the nth copy.
func copyVIP(n int) netip.Addr {
	const row = 250
	return netip.AddrFrom4([4]byte{10, 1, byte(100 + n/row), byte(1 + n%row)})
}

// copied are the tables of a load balancer's parts, with the condition for its rows.
var copied = [][2]string{
	{"load_balancer", "id = '%s'"},
	{"vip", "load_balancer_id = '%s'"},
	{"pool", "load_balancer_id = '%s'"},
	{"listener", "load_balancer_id = '%s'"},
	{"health_monitor", "pool_id IN (SELECT id FROM pool WHERE load_balancer_id = '%s')"},
	{"member", "pool_id IN (SELECT id FROM pool WHERE load_balancer_id = '%s')"},
}

// copyRows copies rows of Octavia's database.
func (t *testbed) copyRows(ctx context.Context, of balancer, count int) error {
	var statements []string
	for _, table := range copied {
		listed, err := t.Query(ctx, "SELECT column_name FROM information_schema.columns "+
			"WHERE table_schema = 'octavia' AND table_name = '"+table[0]+"'")
		if err != nil {
			return err
		}
		columns := strings.Fields(listed)
		values := make([]string, len(columns))
		for i, column := range columns {
			values[i] = copiedValue(column)
		}
		statements = append(statements, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %[1]s AS r JOIN seq_1_to_%[4]d AS s ",
			table[0], strings.Join(columns, ", "), strings.Join(values, ", "), count)+fmt.Sprintf("WHERE "+table[1], of.ID))
	}
	_, err := t.Query(ctx, "USE octavia; START TRANSACTION; "+strings.Join(statements, "; ")+"; COMMIT")
	return err
}

// copiedValue is the value of a column in a copy of row r with the number s.seq.
func copiedValue(column string) string {
	switch column {
	case "id", "load_balancer_id", "pool_id", "default_pool_id":
		return fmt.Sprintf("CONCAT(LPAD(LOWER(HEX(s.seq)), 8, '0'), SUBSTR(r.%s, 9))", column)
	case "protocol_port":
		return "r.protocol_port + s.seq"
	case "ip_address":
		return "IF(r.ip_address LIKE '10.1.%', CONCAT('10.1.', 100 + s.seq DIV 250, '.', 1 + s.seq MOD 250), r.ip_address)"
	case "operating_status":
		return "'OFFLINE'"
	}
	return "r." + column
}

// copyDocuments copies the document of the LB API.
func (t *testbed) copyDocuments(ctx context.Context, of balancer, count int) error {
	token, err := os.ReadFile(filepath.Join(t.Dir, "octavia.token"))
	if err != nil {
		return err
	}
	client := bench.Client{
		HTTP: http.Client{Transport: t.Transport()}, Token: strings.TrimSpace(string(token)),
		Base: "http://" + proxyAddress + "/v1/projects/" + of.Project + "/loadbalancers/",
	}
	text, err := client.Do(ctx, http.MethodGet, of.ID, nil)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	for n := 1; n <= count; n++ {
		replaced := strings.NewReplacer(
			of.ID, copyID(of.ID, n), of.Listeners[0].ID, copyID(of.Listeners[0].ID, n), of.Pools[0].ID, copyID(of.Pools[0].ID, n),
			`"`+of.VIP+`"`, `"`+copyVIP(n).String()+`"`, fmt.Sprint(checkedPort), fmt.Sprint(checkedPort+n),
		).Replace(compact.String())
		if _, err := client.Do(ctx, http.MethodPut, copyID(of.ID, n), json.RawMessage(replaced)); err != nil {
			return err
		}
	}
	return nil
}
