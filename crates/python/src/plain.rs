//! Classes of plain fields, which Python can make, compare, copy and pickle.

/// A class whose fields Python reads by name and sets when it makes an instance; each field has a default.
macro_rules! plain {
    (
        $(#[$meta:meta])*
        $name:ident: [$($option:ident),*] { $($(#[$of_field:meta])* $field:ident: $type:ty = $default:tt,)* }
    ) => {
        $(#[$meta])*
        #[pyclass(frozen, get_all, eq, $($option,)* module = "forebay._forebay")]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        #[pymethods]
        impl $name {
            #[new]
            #[allow(clippy::too_many_arguments, reason = "they are named")]
            #[pyo3(signature = (*, $($field = $default),*))]
            const fn new($($field: $type),*) -> Self {
                Self { $($field),* }
            }

            /// Arguments for pickles and copies.
            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, pyo3::types::PyTuple>, Bound<'py, pyo3::types::PyDict>)> {
                let fields = pyo3::types::PyDict::new(py);
                $(fields.set_item(stringify!($field), self.$field)?;)*
                Ok((pyo3::types::PyTuple::empty(py), fields))
            }

            /// Shows the known fields.
            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut known = Vec::new();
                $(
                    let value = self.$field.into_pyobject(py)?;
                    if !value.is_none() {
                        known.push(format!("{}={}", stringify!($field), value.repr()?));
                    }
                )*
                Ok(format!("{}({})", stringify!($name), known.join(", ")))
            }
        }
    };
}

pub(crate) use plain;
