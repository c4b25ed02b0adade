-- Queries for prove --audit-sql: each must return no row. prove.yaml has those that join the answers of the clients.

-- name: stock-balance
-- finds: product whose stock is not the supply minus the units of confirmed orders
SELECT sku, stock, sum(quantity) FILTER (WHERE status = 'confirmed') AS sold
FROM products LEFT JOIN orders USING (sku)
GROUP BY sku
HAVING stock <> 60 - COALESCE(sum(quantity) FILTER (WHERE status = 'confirmed'), 0);
