"""The paper's curves: `timing` and `counting` measure, `record` keeps, `chart`, `pictures` and `page` show."""
